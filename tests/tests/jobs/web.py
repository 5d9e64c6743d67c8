"""Asks a web server for pages until its standard input ends; checks every answer.

web.py HOST PORT FOLDER THREADS PAGE...: FOLDER has the pages as they must arrive. Half of the
threads keep their connections, the others take a new one for each request. A kept connection
that the server has closed before the first byte of an answer is no failure: the request is
sent again on a new one, as browsers do. Prints a line for every 200 answers.
"""

import http.client
import os
import sys
import threading

host, port, folder, threads, *pages = sys.argv[1:]
contents = {page: open(os.path.join(folder, page), "rb").read() for page in pages}
over = threading.Event()
lock = threading.Lock()
answers = again = 0
failures = []
servers = {}


def ask(connection, page, keeps):
    """One answer; gives False when a kept connection was closed instead."""
    is_new = connection.sock is None
    try:
        connection.request("GET", "/" + page, headers={} if keeps else {"Connection": "close"})
        answer = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        connection.close()
        if is_new:
            raise
        return False
    body = answer.read()
    if answer.status != 200:
        raise AssertionError(f"status {answer.status}: {body[:200]}")
    if body != contents[page]:
        raise AssertionError(f"{page}: {len(body)} bytes of {len(contents[page])}, or others")
    name = answer.getheader("X-Server", "")
    with lock:
        servers[name] = servers.get(name, 0) + 1
    if not keeps:
        connection.close()
    return True


def load(nth):
    global answers, again
    keeps = nth % 2 == 0
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    at = nth
    while not over.is_set():
        page = pages[at % len(pages)]
        at += 1
        try:
            if not ask(connection, page, keeps):
                with lock:
                    again += 1
                ask(connection, page, keeps)
        except Exception as error:
            with lock:
                failures.append(f"{page}, {'kept' if keeps else 'new'} connection: {error!r}")
            connection.close()
        with lock:
            answers += 1
            if answers % 200 == 0:
                print("answers", answers, flush=True)


workers = [threading.Thread(target=load, args=(nth,)) for nth in range(int(threads))]
for worker in workers:
    worker.start()
sys.stdin.read()
over.set()
for worker in workers:
    worker.join()
for failure in failures[:20]:
    print("failure", failure)
for name, count in sorted(servers.items()):
    print("server", name, count)
print("failed", len(failures), "again", again, flush=True)
