/* A listener for MPTCP gives plain TCP connections to who asks for such: they are to have rings. Without MPTCP
 * in the kernel the listener is one for TCP. */
#include "pair.h"

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), ends[2];
	socklen_t len = sizeof(at);

	if (listener < 0)
		listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
		die("listen", 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(ends[0], (void *)&at, sizeof(at)))
		die("connect", 0);
	ends[1] = accept(listener, NULL, NULL);
	talks(ends);
	talks_until(ends, 2);
	if (getenv("LD_PRELOAD") && rings() < 2)
		die("rings", rings());
	talks(ends);
	puts("all there");
	return 0;
}
