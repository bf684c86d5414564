# Tries: TCP to this machine: the web server, Redis, PostgreSQL and a port known to listen
# End: finished
# Cases: 1
# Tests: 1
import socket
import urllib.request


def total(xs):
    return sum(xs)


for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "@HOST@"):
    for port in (int("@TCP@"), 6379, 5432, 5000, 8000, 22):
        try:
            with socket.create_connection((host, port), timeout=0.3) as connection:
                connection.sendall(b"PING\r\n")
                print("@REACHED@", host, port, connection.recv(200))
        except OSError as error:
            print(error.errno, end=" ")
try:
    print("@REACHED@", urllib.request.urlopen("http://127.0.0.1:@TCP@/", timeout=0.3).read())
except OSError as error:
    print(error)
