/* A listener for MPTCP gives plain TCP connections to who asks for such: they are to have rings. */
#include "pair.h"

int main(void)
{
	int ends[2];

	opens_by(ends, IPPROTO_MPTCP);
	talks(ends);
	talks_until(ends, 2);
	if (getenv("LD_PRELOAD") && rings() < 2)
		die("rings", rings());
	talks(ends);
	puts("all there");
	return 0;
}
