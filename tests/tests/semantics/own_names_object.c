/* An object with functions of its own by names that libc has, too. */
#include <stdarg.h>

int vsnprintf(char *text, unsigned long room, const char *format, va_list arguments);

static char text[200];

void dprintf(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
}

const char *daemon(const char *a, const char *b, int c, int d, int e, const char *f)
{
	dprintf("%s%s%d%d%d%s", a, b, c, d, e, f);
	return text;
}

/* As the object's other functions call them. */
const char *reports(int number, double real)
{
	dprintf("%d %.2f %s %d %d %d %d %.1f %.3f", number, real, "text", 1, 2, 3, 4, real * 2, real * 3);
	return text;
}

const char *names(void)
{
	return daemon("a", "b", 3, 4, 5, "f");
}
