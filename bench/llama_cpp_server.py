"""llama.cpp's own server, out of the package `xllamacpp`, until it is ended; a program.

python -m bench.llama_cpp_server WEIGHTS PORT SLOTS CONTEXT
"""

from __future__ import annotations

import signal
import sys


def main(weights: str, port: str, slots: str, context: str) -> None:
    """Serve a model as `tiny`, with so many tokens of context for each slot."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_parallel = int(slots)
    params.n_ctx = int(slots) * int(context)
    params.fit_params = False
    params.cpuparams.n_threads = 1
    params.endpoint_slots = params.endpoint_props = params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
