# Tries: environment, command line, memory maps and folders of every other process
# End: finished
# Cases: 1
# Tests: -
import glob


def total(xs):
    return sum(xs)


for pattern in ("environ", "cmdline", "maps", "mountinfo", "task/*/environ", "root/etc/shadow", "cwd/*"):
    for path in sorted(glob.glob(f"/proc/[0-9]*/{pattern}"))[:60]:
        try:
            with open(path, "rb") as file:
                text = file.read(20_000)
        except OSError as error:
            text = str(error)
        if b"canary" in bytes(text, "utf-8") if isinstance(text, str) else b"canary" in text:
            print(path, text)
try:
    with open("/proc/@SENTINEL@/environ", "rb") as file:
        print("@REACHED@", file.read())
except OSError as error:
    print(error)
