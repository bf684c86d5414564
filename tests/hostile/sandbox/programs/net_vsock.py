# Tries: the host of a virtual machine by vsock, and an IPv6 neighbour by its link
# End: finished
# Cases: 1
# Tests: -
import socket


def total(xs):
    return sum(xs)


for cid in (0, 1, 2, 3):
    try:
        with socket.socket(40, socket.SOCK_STREAM) as sock:
            sock.settimeout(0.2)
            sock.connect((cid, 22))
            print("@REACHED@ vsock", cid)
    except OSError as error:
        print(error)
try:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("ff02::1", 5353, 0, 1))
        print("sent to ff02::1")
except OSError as error:
    print(error)
