# Tries: kernel memory through the buffers of sockets, which belong to no process
# End: memory | processes | finished | left
# Cases: <= 1
# Tests: -
import socket


def total(xs):
    return sum(xs)


held, filled = [], 0
try:
    while filled < 700 << 20:
        pair = socket.socketpair()
        held.append(pair)
        for sock in pair:
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            except OSError:
                pass
            try:
                while True:
                    filled += sock.send(b"x" * 65536)
            except BlockingIOError:
                pass
except OSError as error:
    print(error)
if filled > 384 << 20:
    print("@REACHED@", filled)
