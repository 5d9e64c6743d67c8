"""A unary echo by gRPC's C core, and its load.

grpc_echo.py serve sync|aio                                     says `port NUMBER`
grpc_echo.py drive sync|aio ADDRESS PORT CALLS REQUESTS         as `runtimes drive`, but so
    many calls under way share CONNECTIONS
"""

import asyncio
import concurrent.futures
import hashlib
import itertools
import sys
import time

import grpc
import grpc.aio

CONNECTIONS = 4
METHOD = "/yasmin.Echo/Echo"
# Each channel has a connection of its own.
APART = [("grpc.use_local_subchannel_pool", 1)]


def handlers(call):
    echo = grpc.unary_unary_rpc_method_handler(call)
    return (grpc.method_handlers_generic_handler("yasmin.Echo", {"Echo": echo}),)


def say(*words):
    print(*words, flush=True)


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(handlers(lambda data, context: data))
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    say("port", port)
    server.wait_for_termination()


async def serve_aio():
    async def echo(data, context):
        return data

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers(echo))
    port = server.add_insecure_port("0.0.0.0:0")
    await server.start()
    say("port", port)
    await server.wait_for_termination()


def message(who, nth):
    return hashlib.sha512(b"%d %d" % (who, nth)).digest()


def report(run, requests):
    """Some to warm up, then those that count."""
    run(requests // 4)
    say("warm")
    sys.stdin.readline()
    begun = time.monotonic()
    run(requests)
    say(f"rate={requests / (time.monotonic() - begun)}")
    say("done")
    sys.stdin.readline()


def drive(target, count_of_calls, requests):
    channels = [grpc.insecure_channel(target, APART) for _ in range(CONNECTIONS)]
    calls = [channel.unary_unary(METHOD) for channel in channels]

    def run(count):
        left = itertools.count()

        def ask(who):
            while (nth := next(left)) < count:
                data = message(who, nth)
                assert calls[who % CONNECTIONS](data) == data, "the echo differs"

        with concurrent.futures.ThreadPoolExecutor(count_of_calls) as threads:
            for one in [threads.submit(ask, who) for who in range(count_of_calls)]:
                one.result()

    report(run, requests)


def drive_aio(target, count_of_calls, requests):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    channels = [grpc.aio.insecure_channel(target, APART) for _ in range(CONNECTIONS)]
    calls = [channel.unary_unary(METHOD) for channel in channels]

    async def all_of(count):
        left = itertools.count()

        async def ask(who):
            while (nth := next(left)) < count:
                data = message(who, nth)
                assert await calls[who % CONNECTIONS](data) == data, "the echo differs"

        await asyncio.gather(*(ask(who) for who in range(count_of_calls)))

    report(lambda count: loop.run_until_complete(all_of(count)), requests)


what, how, *rest = sys.argv[1:]
if what == "serve":
    asyncio.run(serve_aio()) if how == "aio" else serve()
else:
    address, port, count_of_calls, requests = rest
    run = drive_aio if how == "aio" else drive
    run(f"{address}:{port}", int(count_of_calls), int(requests))
