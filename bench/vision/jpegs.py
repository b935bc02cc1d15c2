#!/usr/bin/env python3
"""jpegs.py: MNIST's four idx files as folders of JPEGs, for what reads images: jpegs.py FOLDER OUT SIZE [MOST]

FOLDER has train-images-idx3-ubyte and the other three, plain or .gz; OUT gets train/CLASS/N.jpg and val/CLASS/N.jpg in RGB, SIZE pixels
wide and high (bicubic, quality 90), at most MOST of each split. Needs Pillow.
"""
import gzip
import multiprocessing
import pathlib
import sys

from PIL import Image


def read(folder, name):
    path = pathlib.Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())
    axes = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return axes, data[4 + 4 * len(axes):]


def write(job):
    path, size, width, height, pixels = job
    image = Image.frombytes("L", (width, height), pixels)
    image.convert("RGB").resize((size, size), Image.BICUBIC).save(path, quality=90)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder, out, size = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    most = int(sys.argv[4]) if len(sys.argv) > 4 else 1 << 30
    for split, prefix in (("train", "train"), ("val", "t10k")):
        (n, height, width), pixels = read(folder, prefix + "-images-idx3-ubyte")
        _, labels = read(folder, prefix + "-labels-idx1-ubyte")
        jobs = []
        for i in range(min(n, most)):
            at = out / split / str(labels[i])
            at.mkdir(parents=True, exist_ok=True)
            jobs.append((at / f"{i}.jpg", size, width, height, pixels[i * height * width:(i + 1) * height * width]))
        with multiprocessing.Pool() as pool:
            pool.map(write, jobs, chunksize=256)


if __name__ == "__main__":
    main()
