"""One connection, both ends under the library: messages, then bytes that are left unread while the
receiving end is given away: by a Unix socket to a process that was forked before, or that has it by
fork and has closed it, or by exec to another program.

    exchange.py passed|inherited|exec
    exchange.py rest NUMBER      what exec becomes
"""

import array
import fcntl
import os
import socket
import sys
import termios
import time

LEFT = bytes(at * 7 % 251 for at in range(5000))


def exactly(end, count):
    got = b""
    while len(got) < count:
        part = end.recv(count - len(got))
        assert part, f"the end after {len(got)} of {count}"
        got += part
    return got


def unread(end):
    count = array.array("i", [0])
    fcntl.ioctl(end, termios.FIONREAD, count)
    return count[0]


def check_rest(end):
    assert exactly(end, len(LEFT)) == LEFT, "other bytes"
    end.sendall(b"whole")


def warm(end, is_first):
    for _ in range(2000):
        for sends in (is_first, not is_first):
            if sends:
                end.sendall(b"x" * 500)
            else:
                exactly(end, 500)


def take(giver, taker):
    giver.close()
    _, fds, _, _ = socket.recv_fds(taker, 1, 1)
    check_rest(socket.socket(fileno=fds[0]))
    os._exit(0)


def main(how):
    if how == "rest":
        check_rest(socket.socket(fileno=int(sys.argv[2])))
        return
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        ours = socket.create_connection(listener.getsockname())
        warm(ours, True)
        ours.sendall(LEFT)
        print(exactly(ours, 5).decode(), flush=True)
        return
    giver, taker = socket.socketpair()
    if how == "passed" and os.fork() == 0:
        take(giver, taker)
    ours, _ = listener.accept()
    warm(ours, False)
    while unread(ours) < len(LEFT):
        time.sleep(0)
    if how == "exec":
        os.set_inheritable(ours.fileno(), True)
        os.execv(sys.executable, [sys.executable, __file__, "rest", str(ours.fileno())])
    if how == "inherited" and os.fork() == 0:
        ours.close()
        take(giver, taker)
    socket.send_fds(giver, [b"x"], [ours.fileno()])
    ours.close()
    os.wait()
    os.wait()


main(sys.argv[1])
