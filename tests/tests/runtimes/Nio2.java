import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.*;

/** An echo by asynchronous channels, in the default group; says `port NUMBER`. */
public class Nio2 {
    static class Session implements CompletionHandler<Integer, Boolean> {
        final AsynchronousSocketChannel channel;
        final ByteBuffer room = ByteBuffer.allocateDirect(65536);

        Session(AsynchronousSocketChannel channel) {
            this.channel = channel;
        }

        void read() {
            room.clear();
            channel.read(room, true, this);
        }

        public void completed(Integer length, Boolean isRead) {
            if (isRead && length < 0) {
                failed(null, isRead);
            } else if (isRead || room.hasRemaining()) {
                if (isRead) {
                    room.flip();
                }
                channel.write(room, false, this);
            } else {
                read();
            }
        }

        public void failed(Throwable error, Boolean isRead) {
            try {
                channel.close();
            } catch (java.io.IOException ignored) {
                // It is gone.
            }
        }
    }

    public static void main(String[] words) throws Exception {
        var server = AsynchronousServerSocketChannel.open();
        server.bind(new InetSocketAddress("0.0.0.0", 0), 1024);
        System.out.println("port " + ((InetSocketAddress) server.getLocalAddress()).getPort());
        while (true) {
            var channel = server.accept().get();
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            new Session(channel).read();
        }
    }
}
