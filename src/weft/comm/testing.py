from weft.comm.threads import run_threads
def run_ranks(fn, ranks, engine, *args):
    return run_threads(fn, ranks, *args)
