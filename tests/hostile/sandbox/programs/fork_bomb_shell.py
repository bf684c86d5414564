# Tries: the fork bomb of the shell
# End: processes | finished | too long | left
# Cases: <= 1
# Tests: -
import os


def total(xs):
    return sum(xs)


os.system("b() { n=$1; [ $n -lt 10 ] && b $((n+1)) & [ $n -lt 10 ] && b $((n+1)) & sleep 1; }; b 0; wait")
