"""python tools/wheel.py LIBRARY DIR [--version V]: the package python/anneal and the library as one wheel for every Python from
3.10 on, for this machine's system: ctypes calls the library, so that nothing depends on the Python's version."""
import argparse
import base64
import hashlib
import os
import re
import sysconfig
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def version():
    with open(os.path.join(ROOT, "include/anneal.h"), encoding="utf-8") as f:
        return re.search(r'#define AN_VERSION "([^"]*)"', f.read()).group(1)


def platform(library):
    """manylinux_2_N of the newest symbol of the C library that is used; else what this Python calls its own system."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not here.startswith("linux"):
        return here
    with open(library, "rb") as f:
        minors = [int(n) for n in re.findall(rb"GLIBC_2\.(\d+)", f.read())]
    return f"manylinux_2_{max(minors, default=17)}_{here.removeprefix('linux_')}"


def record(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("library")
    p.add_argument("out")
    p.add_argument("--version", default=version())
    o = p.parse_args()
    tag, info = f"py3-none-{platform(o.library)}", f"anneal-{o.version}.dist-info"
    files = {}
    package = os.path.join(ROOT, "python/anneal")
    for name in sorted(n for n in os.listdir(package) if n.endswith(".py")):
        with open(os.path.join(package, name), "rb") as f:
            files[f"anneal/{name}"] = f.read()
    with open(o.library, "rb") as f:
        files["anneal/" + os.path.basename(o.library)] = f.read()
    with open(os.path.join(ROOT, "LICENSE"), "rb") as f:
        files[info + "/licenses/LICENSE"] = f.read()
    files[info + "/METADATA"] = (f"Metadata-Version: 2.4\nName: anneal\nVersion: {o.version}\nSummary: A training compiler; torch.compile(backend=\"anneal\")\n"
                                 "Requires-Python: >=3.10\nProvides-Extra: torch\nRequires-Dist: torch>=2.9; extra == \"torch\"\n"
                                 "License-File: LICENSE\n").encode()
    files[info + "/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tools/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[info + "/entry_points.txt"] = b"[torch_dynamo_backends]\nanneal = anneal.torch:backend\n"
    path = os.path.join(o.out, f"anneal-{o.version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        lines = "".join(record(n, d) for n, d in files.items()) + f"{info}/RECORD,,\n"
        z.writestr(zipfile.ZipInfo(info + "/RECORD", (1980, 1, 1, 0, 0, 0)), lines)
    print(path)


if __name__ == "__main__":
    main()
