def empty_cache():
    """Frees what the functions of anneal.torch hold and do not need between calls: plans, their kernels and scratch memory."""
    from . import _context
    _context.empty_cache()
