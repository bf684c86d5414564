# Tries: memory in /dev/shm, which belongs to no process
# End: memory | finished | left
# Cases: <= 1
# Tests: -
from multiprocessing import shared_memory


def total(xs):
    return sum(xs)


blocks = []
for _ in range(40):
    block = shared_memory.SharedMemory(create=True, size=16 << 20)
    block.buf[:] = b"x" * (16 << 20)
    blocks.append(block)
print("@REACHED@ 640 MB of shared memory")
