# Tries: calls that no homework needs: keys, bpf, perf, userfaultfd, modules, kexec, handles, quotas, swap
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os

ARM = os.uname().machine == "aarch64"


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
nothing = ctypes.create_string_buffer(256)
# name, number on x86-64, number on aarch64, arguments; all of them invalid enough to change nothing
CALLS = (
    ("keyctl", 250, 219, (0, -3, 1)),
    ("add_key", 248, 217, (b"user", b"canary", b"x", 1, -3)),
    ("bpf", 321, 280, (0, nothing, 120)),
    ("perf_event_open", 298, 241, (nothing, 0, -1, -1, 0)),
    ("userfaultfd", 323, 282, (0,)),
    ("fanotify_init", 300, 262, (0, 0)),
    ("memfd_secret", 447, 447, (0,)),
    ("lookup_dcookie", 212, 18, (0, nothing, 10)),
    ("name_to_handle_at", 303, 264, (-100, b"/", nothing, nothing, 0)),
    ("open_by_handle_at", 304, 265, (-100, nothing, 0)),
    ("init_module", 175, 105, (nothing, 0, b"")),
    ("finit_module", 313, 273, (-1, b"", 0)),
    ("delete_module", 176, 106, (b"canary", 0)),
    ("kexec_load", 246, 104, (0, 0, 0, 0)),
    ("swapon", 167, 224, (b"/none", 0)),
    ("acct", 163, 89, (None,)),
    ("quotactl", 179, 60, (0, 0, 0, 0)),
    ("setdomainname", 171, 162, (b"canary", 6)),
    ("syslog", 103, 116, (10, 0, 0)),
)
for name, number, arm, arguments in CALLS:
    ctypes.set_errno(0)
    result = libc.syscall(arm if ARM else number, *arguments)
    print(name, result, ctypes.get_errno())
    if result >= 0 and name not in ("syslog",):
        print("@REACHED@", name)
