"""Real TCP programs, unmodified, between guests a and b: how they are started, and what they say.

Used by check_programs.py, which checks data, and by bench_programs.py, which compares paths.
"""
import csv
import json
import re

from check import Failed, run, start

NGINX_CONF = """
daemon off; worker_processes 1; user root; pid /tmp/nginx.pid; error_log /tmp/nginx.err;
events { worker_connections 512; }
http {
    access_log off; default_type application/octet-stream; keepalive_requests 10000000; sendfile on;
    server { listen 8080; root /tmp/www; }
}
"""


def prepare_nginx():
    run("b", "mkdir -p /tmp/www /var/lib/nginx /var/log/nginx && cat >/tmp/nginx.conf", stdin=NGINX_CONF.encode())
    run("b", "cd /tmp/www && for kib in 1 256 3000; do [ -e $kib ] || head -c $((kib * 1024)) /dev/urandom >$kib; done")


def iperf3(output):
    return {"stream, Gbit/s": json.loads(output)["end"]["sum_received"]["bits_per_second"] / 1e9}


def sockperf(output):
    return {"64 B, one way, us": float(re.search(r"Summary: Latency is ([\d.]+) usec", output)[1])}


def netpipe(output):
    """Its lines: number, bytes, times, Mbit/s, us one way."""
    rows = re.findall(r"(\d+) bytes\s+\d+ times -->\s+([\d.]+) Mbps in\s+([\d.]+) usec", output)
    if not rows:
        raise Failed(output)
    return {"1 B, one way, us": float(rows[0][2]), f"{int(rows[-1][0]) // 1024} KiB, Gbit/s": float(rows[-1][1]) / 1000}


def redis(output):
    rows = list(csv.DictReader(output[output.index('"test"'):].splitlines()))
    return {f"{row['test']}, {what}": float(row[column]) for row in rows for what, column in
            (("requests/s", "rps"), ("p50, ms", "p50_latency_ms"))}


def wrk(output):
    if "Socket errors" in output or "Non-2xx" in output:
        raise Failed(output)
    return {"requests/s": float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])}


class Program:
    """`server` runs in b until it is ended, `client` in a; {address} is b's."""

    def __init__(self, name, port, server, client, figures, prepare=None):
        self.name, self.port, self.server, self.client = name, port, server, client
        self.figures, self.prepare = figures, prepare

    def serve(self, prefix=""):
        if self.prepare:
            self.prepare()
        start("b", "program", f"{prefix} {self.server}")
        run("b", f"until netstat -ltn | grep -q ':{self.port} '; do usleep 20000; done", timeout_s=60)

    def ask(self, address, prefix="", timeout_s=300):
        """What the client says."""
        return run("a", f"{prefix} {self.client.format(address=address)} 2>&1", timeout_s=timeout_s)

    def end(self):
        """The server, whatever it is doing; its port is free then."""
        name = self.server.split()[0]
        run("b", f"kill $(pidof {name}) 2>/dev/null; until [ -e /tmp/program.rc ]; do usleep 20000; done", timeout_s=60)


REDIS = "redis-server --port 6379 --save '' --bind 0.0.0.0 :: --protected-mode no"

PROGRAMS = [
    Program("iperf3 -n 60M", 5201, "iperf3 -s", "iperf3 -c {address} -n 60M -J", iperf3),
    Program("sockperf ping-pong", 11111, "sockperf server --tcp -i 0.0.0.0 -p 11111",
            "sockperf ping-pong --tcp -i {address} -p 11111 -m 64 -t 2", sockperf),
    Program("NetPIPE -u 262144", 5002, "NPtcp -u 262144 -n 100", "NPtcp -h {address} -u 262144 -n 100 -o /tmp/np", netpipe),
    Program("redis-benchmark -c 1 -d 100", 6379, REDIS,
            "redis-benchmark -h {address} -c 1 -n 3000 -d 100 -t set,get --csv", redis),
    Program("redis-benchmark -c 16 -d 100", 6379, REDIS,
            "redis-benchmark -h {address} -c 16 -n 6000 -d 100 -t set,get --csv", redis),
    Program("wrk -c 4, nginx, 1 KiB", 8080, "nginx -c /tmp/nginx.conf",
            "wrk -t 1 -c 4 -d 2s http://{address}:8080/1", wrk, prepare_nginx),
    Program("wrk -c 4, nginx, 256 KiB", 8080, "nginx -c /tmp/nginx.conf",
            "wrk -t 1 -c 4 -d 2s http://{address}:8080/256", wrk, prepare_nginx),
]
