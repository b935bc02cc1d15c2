"""Takes out of an archive what no importer reads and each machine writes otherwise: samples, stack traces, places in source files."""
import json
import zipfile


def strip(path):
    with zipfile.ZipFile(path) as z:
        parts = [(i.filename, z.read(i.filename)) for i in z.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in parts:
            if "/sample_inputs/" in name or name.endswith("serialization_id"):
                continue
            if "/models/" in name:
                program = json.loads(data)
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {}
                data = json.dumps(program, separators=(",", ":")).encode()
            z.writestr(zipfile.ZipInfo(name), data)
