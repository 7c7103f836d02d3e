"""What cuSOLVER asks for: bytes of the workspaces of the factorisations that torch 2.11 calls, by size, without running any
(cusolverDn…_bufferSize). A line: the routine, sizes, bytes.

usage: solver_workspaces.py OUT      on a card, in seconds"""
import ctypes
import glob
import json
import os
import random
import sys

ONE = [*range(1, 131), *range(132, 260, 4), 288, 300, 320, 333, 352, 384, 400, 448, 480, 500, 512, 513, 520, 544, 576, 600, 640, 700, 768, 800, 896, 1000, 1024,
       1025, 1152, 1280, 1500, 1536, 1792, 2000, 2048, 2304, 2560, 3000, 3072, 4000, 4096, 6000, 8192]
NULL, i32, i64 = ctypes.c_void_p(0), ctypes.c_int, ctypes.c_int64
VECTORS, NO_VECTORS, LOWER, LEFT, TRANSPOSED = 1, 0, 0, 0, 1
TYPES = {"S": (0, 4, 0), "D": (1, 8, 1)}  # cudaDataType of float32 and float64, their bytes


def main(out):
    import torch
    held = torch.zeros(1 << 16, device="cuda")
    p = ctypes.c_void_p(held.data_ptr())
    torch.linalg.qr(torch.randn(8, 8, device="cuda"))  # loads the library
    root = os.path.dirname(os.path.dirname(torch.__file__))
    lib = ctypes.CDLL(next(iter(glob.glob(root + "/nvidia/**/libcusolver.so*", recursive=True))))
    handle, params, jacobi, svd = (ctypes.c_void_p() for _ in range(4))
    assert lib.cusolverDnCreate(ctypes.byref(handle)) == 0
    lib.cusolverDnCreateParams(ctypes.byref(params))
    lib.cusolverDnCreateSyevjInfo(ctypes.byref(jacobi))
    lib.cusolverDnCreateGesvdjInfo(ctypes.byref(svd))
    chooser = random.Random(1)
    pairs = [(m, n) for m in (2, 8, 16, 20, 32, 33, 50, 64, 100, 128, 197, 256, 300, 512, 1000, 1024, 2048, 4096) for n in (1, 2, 8, 10, 16, 20, 32, 33, 50, 64, 100, 128, 256, 512, 1024)]
    pairs += [(chooser.randint(1, 600), chooser.randint(1, 600)) for _ in range(600)] + [(chooser.randint(1, 4096), chooser.randint(1, 4096)) for _ in range(300)]
    with open(out, "w") as file:
        def tell(name, prefix, size, status, elements, host=0):
            file.write(json.dumps([prefix + name, *size, elements if status == 0 else None, *([host] if host else [])], separators=(",", ":")) + "\n")

        def plain(name, prefix, size, *given, count=1):
            found = i32(0)
            status = getattr(lib, f"cusolverDn{prefix}{name}_bufferSize")(handle, *given, ctypes.byref(found), *([jacobi] if "syevj" in name else [svd] if "gesvdj" in name else []),
                                                                          *([i32(count)] if "Batched" in name else []))
            tell(name, prefix, size, status, found.value * TYPES[prefix][1])

        def wide(name, prefix, size, *given, tail=()):
            device, host = ctypes.c_size_t(0), ctypes.c_size_t(0)
            status = getattr(lib, f"cusolverDnX{name}_bufferSize")(handle, params, *given, ctypes.byref(device), ctypes.byref(host), *tail)
            tell("X" + name, prefix, size, status, device.value, host.value)

        for prefix, (kind, _, _) in TYPES.items():
            t = i32(kind)
            for n in ONE:
                plain("getrf", prefix, [n, n], i32(n), i32(n), p, i32(n))
                wide("getrf", prefix, [n, n], i64(n), i64(n), t, p, i64(n), t)
                wide("potrf", prefix, [n], i32(LOWER), i64(n), t, p, i64(n), t)
                plain("potri", prefix, [n], i32(LOWER), i32(n), p, i32(n))
                for job in (NO_VECTORS, VECTORS):
                    plain("syevj", prefix, [n, job], i32(job), i32(LOWER), i32(n), p, i32(n), p)
                    wide("syevd", prefix, [n, job], i32(job), i32(LOWER), i64(n), t, p, i64(n), t, p, t)
                    for count in (1, 2, 3, 8, 64):
                        if n <= 64: plain("syevjBatched", prefix, [n, job, count], i32(job), i32(LOWER), i32(n), p, i32(n), p, count=count)
                        if n <= 512 and hasattr(lib, "cusolverDnXsyevBatched_bufferSize"):
                            wide("syevBatched", prefix, [n, job, count], i32(job), i32(LOWER), i64(n), t, p, i64(n), t, p, t, tail=[i64(count)])
            if prefix == "D": continue
            for m, n in pairs:
                wide("geqrf", prefix, [m, n], i64(m), i64(n), t, p, i64(m), t, p, t)
                k = min(m, n)
                plain("orgqr", prefix, [m, k, k], i32(m), i32(k), i32(k), p, i32(m), p)
                plain("orgqr", prefix, [m, n, k], i32(m), i32(n), i32(k), p, i32(m), p) if n <= m else None
                plain("ormqr", prefix, [m, n, k], i32(LEFT), i32(TRANSPOSED), i32(m), i32(n), i32(k), p, i32(m), p, p, i32(m))
                for job in (NO_VECTORS, VECTORS):
                    for thin in (0, 1): plain("gesvdj", prefix, [m, n, job, thin], i32(job), i32(thin), i32(m), i32(n), p, i32(m), p, p, i32(m), p, i32(n))
                    if max(m, n) <= 32: plain("gesvdjBatched", prefix, [m, n, job, 8], i32(job), i32(m), i32(n), p, i32(m), p, p, i32(m), p, i32(n), count=8)
                if m >= n: plain("gesvd", prefix, [m, n], i32(m), i32(n))


if __name__ == "__main__": main(sys.argv[1])
