"""Publishes messages with confirms and consumes them at the same time; checks each.

rabbitmq.py HOST PORT COUNT: COUNT messages to each of four queues, a publisher and a consumer
for each, one process each.
"""

import hashlib
import multiprocessing
import sys

import pika

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def connect():
    parameters = pika.ConnectionParameters(host, port, blocked_connection_timeout=60)
    connection = pika.BlockingConnection(parameters)
    return connection, connection.channel()


def body(queue, nth):
    size = 200_000 if nth % 100 == 99 else nth * 37 % 5000
    seed = hashlib.sha256(f"{queue} {nth}".encode()).digest()
    return (seed * (size // len(seed) + 1))[: size + 32]


def publish(queue):
    connection, channel = connect()
    channel.confirm_delivery()
    for nth in range(count):
        channel.basic_publish("", queue, body(queue, nth), mandatory=True)
    connection.close()


def consume(queue):
    connection, channel = connect()
    channel.basic_qos(prefetch_count=50)
    nth = 0
    for method, _, got in channel.consume(queue, inactivity_timeout=60):
        assert method is not None, f"{queue}: no message {nth}"
        assert got == body(queue, nth), f"{queue}: message {nth} differs"
        channel.basic_ack(method.delivery_tag)
        nth += 1
        if nth == count:
            break
    channel.cancel()
    connection.close()


queues = [f"queue{nth}" for nth in range(4)]
connection, channel = connect()
for queue in queues:
    channel.queue_declare(queue)
connection.close()
work = [(step, queue) for queue in queues for step in (publish, consume)]
workers = [multiprocessing.Process(target=step, args=(queue,)) for step, queue in work]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
bad = [worker.exitcode for worker in workers if worker.exitcode]
assert not bad, bad
connection, channel = connect()
for queue in queues:
    left = channel.queue_declare(queue, passive=True).method.message_count
    assert left == 0, f"{queue}: {left} messages are left"
connection.close()
print("all right")
