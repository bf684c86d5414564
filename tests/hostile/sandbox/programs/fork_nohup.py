# Tries: leaving daemons behind by nohup, setsid and the at job queue
# End: finished
# Cases: 1
# Tests: -
import subprocess


def total(xs):
    return sum(xs)


for command in (
    "nohup sleep 40 >/dev/null 2>&1 &",
    "setsid sleep 40 >/dev/null 2>&1 < /dev/null &",
    "echo 'touch @FOLDER@/touched' | at now",
    "echo '* * * * * touch @FOLDER@/touched' | crontab -",
    "systemd-run touch @FOLDER@/touched",
):
    subprocess.run(["sh", "-c", command], timeout=1)
