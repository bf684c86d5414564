# Tries: what the machine is: password files, keys, kernel log and symbols, sysfs, cgroups
# End: finished
# Cases: 1
# Tests: -
import ctypes
import glob


def total(xs):
    return sum(xs)


for pattern in ("/etc/shadow", "/root/*", "/root/.ssh/*", "/home/*/*", "/proc/kcore", "/proc/kmsg", "/dev/kmsg",
                "/sys/fs/cgroup/*", "/sys/kernel/*", "/proc/keys", "/proc/sched_debug", "/dev/mem", "/dev/sd*", "/dev/vd*"):
    for path in glob.glob(pattern)[:20]:
        try:
            with open(path, "rb") as file:
                text = file.read(4096)
            if text and ("shadow" in path or "/dev/" in path or "/root" in path or "kcore" in path):
                print("@REACHED@", path, text[:80])
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(1 << 16)
if libc.klogctl(3, buffer, 1 << 16) > 0:
    print("@REACHED@ kernel log", buffer.value[:200])
