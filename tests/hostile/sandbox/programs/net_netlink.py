# Tries: adding a network device and an address by netlink, to make a way out
# End: finished
# Cases: 1
# Tests: -
import socket
import struct
import subprocess


def total(xs):
    return sum(xs)


for command in (["ip", "link", "add", "v0", "type", "veth"], ["ip", "link", "set", "lo", "up"],
                ["ip", "tuntap", "add", "t0", "mode", "tun"]):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1)
        if done.returncode == 0:
            print("@REACHED@", command)
    except OSError as error:
        print(error)
try:
    with socket.socket(16, socket.SOCK_RAW, 0) as sock:
        name = b"v0\0\0"
        attribute = struct.pack("HH", 4 + len(name), 3) + name
        body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + attribute
        sock.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        print(sock.recv(4096))
except OSError as error:
    print(error)
