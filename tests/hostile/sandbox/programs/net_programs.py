# Tries: the network by the tools of the system: curl, wget, nc, bash's /dev/tcp, ssh, git, pip
# End: finished | too long
# Cases: 1
# Tests: -
import subprocess


def total(xs):
    return sum(xs)


for command in (
    "curl -m 1 http://127.0.0.1:@TCP@/",
    "wget -T 1 -t 1 -O- http://127.0.0.1:@TCP@/",
    "echo @REACHED@ | nc -w 1 127.0.0.1 @TCP@",
    "exec 3<>/dev/tcp/127.0.0.1/@TCP@ && echo reached >&3 && cat <&3",
    "exec 3<>/dev/udp/127.0.0.1/@UDP@ && echo reached >&3",
    "getent hosts leak.example.invalid",
):
    try:
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=1.2)
        if done.returncode == 0:
            print("ended well:", command, done.stdout[:200])
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error)
