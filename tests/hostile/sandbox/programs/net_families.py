# Tries: sockets of every family and kind: raw, packet, netlink, vsock, Bluetooth, the kernel's ciphers
# End: finished
# Cases: 1
# Tests: -
import socket


def total(xs):
    return sum(xs)


HARMFUL = {2: "inet", 10: "inet6", 17: "packet", 40: "vsock", 38: "alg", 31: "bluetooth", 44: "xdp", 30: "tipc", 29: "can"}
for family in range(2, 46):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 1, 255):
            try:
                sock = socket.socket(family, kind, protocol)
            except (OSError, OverflowError):
                continue
            print("a socket", family, kind, protocol)
            with sock:
                if family in HARMFUL and kind == 3 or family in (17, 40, 38, 31, 44):
                    print("@REACHED@", HARMFUL.get(family, family), kind)
