// Two ways to serve, selectors and threads; clients of both kinds that compare what comes back.
//
// java Exchange.java listen PORT       echoes: selector on PORT, thread per connection on PORT+1
// java Exchange.java connect HOST PORT ROUNDS
//
// Every tenth connection is closed by another thread while a read sleeps on it, which the JDK
// does by putting another descriptor in its place.

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

class Exchange {
    static void serveBySelector(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(port), 200).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    accepted.configureBlocking(false);
                    accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(30_000));
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                try {
                    if (key.isReadable() && channel.read(buffer) < 0) {
                        channel.close();
                        continue;
                    }
                    buffer.flip();
                    channel.write(buffer);
                    buffer.compact();
                    int wanted = buffer.position() > 0 ? SelectionKey.OP_WRITE : 0;
                    key.interestOps(wanted | (buffer.hasRemaining() ? SelectionKey.OP_READ : 0));
                } catch (IOException error) {
                    channel.close();
                }
            }
        }
    }

    static void serveByThreads(int port) throws IOException {
        ServerSocket listener = new ServerSocket(port, 200);
        while (true) {
            Socket socket = listener.accept();
            new Thread(() -> {
                byte[] buffer = new byte[50_000];
                try (socket) {
                    int length;
                    while ((length = socket.getInputStream().read(buffer)) >= 0) {
                        socket.getOutputStream().write(buffer, 0, length);
                    }
                } catch (IOException error) {
                    // The client went away.
                }
            }).start();
        }
    }

    static void exchange(String host, int port, int seed) throws Exception {
        Random random = new Random(seed);
        try (Socket socket = new Socket(host, port)) {
            OutputStream out = socket.getOutputStream();
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int turn = 0; turn < 100; turn++) {
                byte[] sent = new byte[1 + random.nextInt(turn % 20 == 19 ? 200_000 : 3000)];
                random.nextBytes(sent);
                Thread writer = new Thread(() -> {
                    try {
                        out.write(sent);
                    } catch (IOException error) {
                        throw new RuntimeException(error);
                    }
                });
                writer.start();
                socket.setSoTimeout(turn % 3 == 0 ? 20_000 : 0);
                byte[] got = new byte[sent.length];
                in.readFully(got);
                writer.join();
                if (!Arrays.equals(sent, got)) {
                    throw new AssertionError("turn " + turn + " of " + seed + " differs");
                }
            }
            socket.setSoTimeout(5);
            try {
                in.read();
                throw new AssertionError("a byte that nobody sent");
            } catch (SocketTimeoutException expected) {
                socket.setSoTimeout(0);
            }
            if (seed % 10 == 0) {
                closeWhileReading(socket, in);
            }
        }
    }

    static void closeWhileReading(Socket socket, DataInputStream in) throws Exception {
        Thread reader = Thread.currentThread();
        Thread closer = new Thread(() -> {
            while (reader.getState() == Thread.State.NEW) {
                Thread.onSpinWait();
            }
            try {
                socket.close();
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
        });
        closer.start();
        try {
            in.read();
            throw new AssertionError("read on a closed socket");
        } catch (SocketException expected) {
            closer.join();
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("listen")) {
            int port = Integer.parseInt(words[1]);
            new Thread(() -> {
                try {
                    serveByThreads(port + 1);
                } catch (IOException error) {
                    throw new RuntimeException(error);
                }
            }).start();
            serveBySelector(port);
        }
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<?>> futures = new ArrayList<>();
        int port = Integer.parseInt(words[2]), rounds = Integer.parseInt(words[3]);
        for (int seed = 0; seed < rounds; seed++) {
            int own = seed;
            Callable<Void> one = () -> {
                exchange(words[1], port + own % 2, own);
                return null;
            };
            futures.add(pool.submit(one));
        }
        for (Future<?> future : futures) {
            future.get();
        }
        pool.shutdown();
        System.out.println("all right");
    }
}
