def empty_cache():
    """Frees what compiled functions, steps and models hold and do not need between calls: plans, their kernels and scratch memory."""
    from . import _library
    _library.empty_cache()


def load(path, **options):
    """model = anneal.load("model.pt2"); y = model(x); loss = model.step(x, y): a model over arrays of any library that has DLPack. PyTorch
    is not needed: see _model.py."""
    from ._model import load as of_file
    return of_file(path, **options)
