# Tries: sockets in the file system: the server's, Docker's, D-Bus, Redis, PostgreSQL, systemd's
# End: finished
# Cases: 1
# Tests: -
import glob
import socket


def total(xs):
    return sum(xs)


paths = ["@UNIX@", "/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/systemd/private",
         "/run/dbus/system_bus_socket", "/run/redis/redis-server.sock", "/var/run/postgresql/.s.PGSQL.5432",
         "/run/containerd/containerd.sock", "/dev/log", "/run/snapd.socket"]
for path in paths + glob.glob("/tmp/*/*.sock") + glob.glob("/run/*sock*") + glob.glob("/run/*/*sock*"):
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(3 if path == paths[0] else 0.3)
            sock.connect(path)
            sock.sendall(b"GET /info HTTP/1.0\r\n\r\n")
            print("@REACHED@", path, sock.recv(200))
    except OSError as error:
        print(error.errno, end=" ")
