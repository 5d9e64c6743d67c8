import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.*;

/** An echo by one thread with a selector; says `port NUMBER`. */
public class Selector {
    public static void main(String[] words) throws Exception {
        var server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("0.0.0.0", 0), 1024);
        server.configureBlocking(false);
        System.out.println("port " + server.socket().getLocalPort());
        var selector = java.nio.channels.Selector.open();
        server.register(selector, SelectionKey.OP_ACCEPT);
        var room = ByteBuffer.allocateDirect(65536);
        while (true) {
            selector.select(key -> {
                try {
                    if (key.isAcceptable()) {
                        var one = server.accept();
                        one.setOption(StandardSocketOptions.TCP_NODELAY, true);
                        one.configureBlocking(false);
                        one.register(selector, SelectionKey.OP_READ);
                        return;
                    }
                    var one = (SocketChannel) key.channel();
                    room.clear();
                    if (one.read(room) < 0) {
                        one.close();
                        return;
                    }
                    for (room.flip(); room.hasRemaining(); ) {
                        one.write(room);
                    }
                } catch (java.io.IOException error) {
                    key.cancel();
                }
            });
        }
    }
}
