// An echo by asio: several threads run one context.
//
// asio THREADS       says `port NUMBER`
#include <asio.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

using asio::ip::tcp;

struct Session : std::enable_shared_from_this<Session> {
	explicit Session(tcp::socket one) : socket(std::move(one)), room(65536) {}

	void read()
	{
		socket.async_read_some(asio::buffer(room),
			[self = shared_from_this()](std::error_code error, std::size_t length) {
				if (!error)
					self->write(length);
			});
	}

	void write(std::size_t length)
	{
		asio::async_write(socket, asio::buffer(room, length),
			[self = shared_from_this()](std::error_code error, std::size_t) {
				if (!error)
					self->read();
			});
	}

	tcp::socket socket;
	std::vector<char> room;
};

static void admit(tcp::acceptor &acceptor)
{
	acceptor.async_accept([&](std::error_code error, tcp::socket socket) {
		if (!error) {
			socket.set_option(tcp::no_delay(true));
			std::make_shared<Session>(std::move(socket))->read();
		}
		admit(acceptor);
	});
}

int main(int count, char **words)
{
	int threads = count > 1 ? std::atoi(words[1]) : 4;
	asio::io_context context(threads);
	tcp::acceptor acceptor(context, tcp::endpoint(tcp::v4(), 0));
	std::printf("port %d\n", acceptor.local_endpoint().port());
	std::fflush(stdout);
	admit(acceptor);
	std::vector<std::thread> others;
	for (int nth = 1; nth < threads; nth++)
		others.emplace_back([&] { context.run(); });
	context.run();
}
