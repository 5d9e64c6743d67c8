// Echo.java listen blocking|nio | connect HOST PORT blocking|nio
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.*;

public class Echo {
    static final int CONNECTIONS = 4, MESSAGES = 400;

    public static void main(String[] words) throws Exception {
        if (words[0].equals("listen")) {
            if (words[1].equals("nio")) listenNio(); else listenBlocking();
        } else {
            InetSocketAddress to = new InetSocketAddress(words[1], Integer.parseInt(words[2]));
            List<Thread> all = new ArrayList<>();
            boolean[] same = new boolean[CONNECTIONS];
            for (int i = 0; i < CONNECTIONS; i++) {
                int nth = i;
                Thread one = new Thread(() -> {
                    try {
                        same[nth] = words[3].equals("nio") ? connectNio(to, nth) : connect(to, nth);
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                });
                one.start();
                all.add(one);
            }
            for (Thread one : all) one.join();
            for (boolean one : same) if (!one) System.exit(1);
            System.out.println("same");
        }
    }

    static byte[] message(Random random) {
        byte[] bytes = new byte[1 + random.nextInt(random.nextInt(10) == 0 ? 60000 : 200)];
        random.nextBytes(bytes);
        return bytes;
    }

    static void listenBlocking() throws Exception {
        ServerSocket listener = new ServerSocket(0);
        System.out.println("port " + listener.getLocalPort());
        while (true) {
            Socket socket = listener.accept();
            new Thread(() -> {
                try (socket) {
                    byte[] bytes = new byte[65536];
                    InputStream in = socket.getInputStream();
                    OutputStream out = socket.getOutputStream();
                    for (int got; (got = in.read(bytes)) > 0; ) out.write(bytes, 0, got);
                } catch (IOException error) {
                    error.printStackTrace();
                }
            }).start();
        }
    }

    static void listenNio() throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(0));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        System.out.println("port " + ((InetSocketAddress) listener.getLocalAddress()).getPort());
        while (true) {
            selector.select();
            Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
            while (keys.hasNext()) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer bytes = (ByteBuffer) key.attachment();
                boolean over = key.isReadable() && channel.read(bytes) < 0;
                bytes.flip();
                channel.write(bytes);
                bytes.compact();
                if (over && bytes.position() == 0) {
                    channel.close();
                } else {
                    int reads = over || !bytes.hasRemaining() ? 0 : SelectionKey.OP_READ;
                    int writes = bytes.position() > 0 ? SelectionKey.OP_WRITE : 0;
                    key.interestOps(reads | writes);
                }
            }
        }
    }

    static boolean connect(InetSocketAddress to, int seed) throws Exception {
        try (Socket socket = new Socket(to.getAddress(), to.getPort())) {
            socket.setTcpNoDelay(true);
            Random random = new Random(seed);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int i = 0; i < MESSAGES; i++) {
                byte[] sent = message(random), got = new byte[sent.length];
                socket.getOutputStream().write(sent);
                in.readFully(got);
                if (!Arrays.equals(sent, got)) return false;
            }
            socket.shutdownOutput();
            return in.read() < 0;
        }
    }

    static boolean connectNio(InetSocketAddress to, int seed) throws Exception {
        Selector selector = Selector.open();
        SocketChannel channel = SocketChannel.open();
        channel.configureBlocking(false);
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.connect(to);
        SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT);
        while (!channel.finishConnect()) selector.select();
        Random random = new Random(seed);
        ByteBuffer got = ByteBuffer.allocateDirect(65536);
        for (int i = 0; i < MESSAGES; i++) {
            byte[] sent = message(random);
            ByteBuffer rest = ByteBuffer.wrap(sent);
            got.clear().limit(sent.length);
            while (got.hasRemaining()) {
                key.interestOps(SelectionKey.OP_READ | (rest.hasRemaining() ? SelectionKey.OP_WRITE : 0));
                selector.select();
                selector.selectedKeys().clear();
                if (rest.hasRemaining()) channel.write(rest);
                if (channel.read(got) < 0) return false;
            }
            if (!got.flip().equals(ByteBuffer.wrap(sent))) return false;
        }
        channel.shutdownOutput();
        key.interestOps(SelectionKey.OP_READ);
        selector.select();
        got.clear();
        return channel.read(got) < 0;
    }
}
