"""Programs that people use, unmodified, in two guests under `yasmin run`: data checked, carried by grants."""
import guest_programs
from check import Failed, check, run, start, finish
from check_guests import ADDRESS, RUN, broker, knows, network_bytes, no_traces, ready, script
from guest_programs import Program

# What the set-up of connections may cost on the network, with the lab's own commands.
NETWORK_BYTES_MAX = 500_000


class by_grants:
    """A block whose bytes must not go by the network, and that leaves nothing behind."""

    def __enter__(self):
        ready()
        self.before = network_bytes("a") + network_bytes("b")

    def __exit__(self, kind, *_):
        if kind:
            return
        went = network_bytes("a") + network_bytes("b") - self.before
        if went > NETWORK_BYTES_MAX:
            raise Failed(f"{went} bytes went by the network")
        no_traces()


@check
def guests_run_sockperf():
    """Each answer is compared with what was sent."""
    program = Program("", 11111, "sockperf server --tcp -i 0.0.0.0 -p 11111",
                      "sockperf ping-pong --tcp -i {address} -p 11111 -m 4000 -t 2 --data-integrity", guest_programs.sockperf)
    with by_grants():
        program.serve(RUN)
        output = program.ask(ADDRESS["b"], RUN)
        program.figures(output)
        if "data integrity test failed" in output.lower() or "error" in output.lower():
            raise Failed(output)
        program.end()


@check
def guests_run_netpipe():
    """Its own check of data, messages of up to 64 KiB."""
    program = Program("", 5002, "NPtcp -i -u 65536 -n 10", "NPtcp -h {address} -i -u 65536 -n 10 -o /tmp/np", None)
    with by_grants():
        program.serve(RUN)
        output = program.ask(ADDRESS["b"], RUN)
        if "Integrity check passed" not in output or "failed" in output.lower():
            raise Failed(output)
        program.end()


REDIS_CLIENT = """
import hashlib, random, socket, sys
random.seed(7)
server = socket.create_connection((sys.argv[1], 6379), 60).makefile("rwb")
def ask(*words):
    server.write(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(word), word) for word in words))
def answer():
    line = server.readline()
    return server.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line
values = {b"key:%d" % i: random.randbytes(random.choice((1, 100, 5000, 200000))) for i in range(200)}
for name, value in values.items():
    ask(b"SET", name, value)
    server.flush()
    assert answer() == b"+OK\\r\\n"
# A pipeline: many at once.
for name in values:
    ask(b"GET", name)
server.flush()
for name, value in values.items():
    assert answer() == value, name
print("kept", len(values), sum(map(len, values.values())))
"""


@check
def guests_run_redis():
    """What is put in comes out, one by one and in a pipeline; then its own benchmark."""
    redis = next(program for program in guest_programs.PROGRAMS if program.name.startswith("redis-benchmark -c 16"))
    script("a", "redis", REDIS_CLIENT)
    with by_grants():
        redis.serve(RUN)
        run("a", f"{RUN} python3 /tmp/redis.py {ADDRESS['b']}", timeout_s=120)
        redis.figures(redis.ask(ADDRESS["b"], RUN))
        redis.end()


HTTP_CLIENT = """
import hashlib, socket, sys
server = socket.create_connection((sys.argv[1], 8080), 60).makefile("rwb")
for name in sys.argv[2:]:
    server.write(b"GET /%s HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n" % name.encode())
    server.flush()
    assert b" 200 " in server.readline()
    while (line := server.readline()) != b"\\r\\n":
        if line.lower().startswith(b"content-length:"):
            size = int(line.split()[1])
    print(hashlib.sha256(server.read(size)).hexdigest())
"""


@check
def guests_run_nginx():
    """Files arrive whole over one connection; then wrk, without an error."""
    nginx = next(program for program in guest_programs.PROGRAMS if "nginx, 1 KiB" in program.name)
    files = "1 256 3000 1 3000"
    script("a", "http", HTTP_CLIENT)
    with by_grants():
        nginx.serve(RUN)
        wanted = [line.split()[0] for line in run("b", f"cd /tmp/www && sha256sum {files}").splitlines()]
        got = run("a", f"{RUN} python3 /tmp/http.py {ADDRESS['b']} {files}", timeout_s=120).split()
        if got != wanted:
            raise Failed(f"sums {got}, not {wanted}")
        nginx.figures(nginx.ask(ADDRESS["b"], RUN))
        nginx.end()
