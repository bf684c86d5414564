# Tries: UDP, as a name server is asked, with and without connecting first
# End: finished
# Cases: 1
# Tests: -
import socket


def total(xs):
    return sum(xs)


for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "@HOST@"), (socket.AF_INET6, "::1")):
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.3)
            sock.sendto(b"@REACHED@ by udp", (host, int("@UDP@")))
            sock.connect((host, int("@UDP@")))
            sock.send(b"@REACHED@ by udp")
            print(sock.recv(100))
    except OSError as error:
        print(error)
try:
    print("@REACHED@", socket.getaddrinfo("leak.example.invalid", 80))
except OSError as error:
    print(error)
