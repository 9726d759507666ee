/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"

/* Written once, before the first checkpoint: a restore of .data puts back what is there. */
static crn_log_writer log_writer;
static enum crn_log_level log_max = CRN_LOG_WARN;

void crn_log_init(crn_log_writer writer, enum crn_log_level max)
{
	log_max = max;
	log_writer = writer;
}

/* Where formatted bytes go: counts all, keeps what fits. */
struct out {
	char *buf;
	size_t size, len;
};

static void put(struct out *o, char c)
{
	if (o->len + 1 < o->size)
		o->buf[o->len] = c;
	o->len++;
}

/* One conversion, as parsed from %[-][0][width][.precision][length]type. */
struct spec {
	bool left, zero, negative, alternate;
	size_t width;
	size_t precision; /* of %s; SIZE_MAX if none */
	unsigned longs;   /* 0, 1 (l, z), 2 (ll) */
};

static void put_padded(
	struct out *o, const struct spec *s, const char *text, size_t len, bool number)
{
	size_t prefix = (s->negative ? 1 : 0) + (s->alternate ? 2 : 0);
	size_t pad = s->width > len + prefix ? s->width - len - prefix : 0;
	bool zeros = s->zero && number && !s->left;

	if (!s->left && !zeros)
		for (; pad; pad--)
			put(o, ' ');
	if (s->negative)
		put(o, '-');
	if (s->alternate) {
		put(o, '0');
		put(o, 'x');
	}
	if (zeros)
		for (; pad; pad--)
			put(o, '0');
	for (size_t i = 0; i < len; i++)
		put(o, text[i]);
	for (; pad; pad--)
		put(o, ' ');
}

static void put_number(struct out *o, const struct spec *s, uint64_t value, unsigned base)
{
	char digits[24];
	size_t at = sizeof(digits);

	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	put_padded(o, s, digits + at, sizeof(digits) - at, true);
}

static void put_string(struct out *o, const struct spec *s, const char *text)
{
	size_t len = 0;

	if (!text)
		text = "(null)";
	while (len < s->precision && text[len])
		len++;
	put_padded(o, s, text, len, false);
}

/* The part between % and the type. */
static const char *parse_spec(const char *fmt, struct spec *s, va_list *ap)
{
	*s = (struct spec){ .precision = SIZE_MAX };
	for (;; fmt++) {
		if (*fmt == '-')
			s->left = true;
		else if (*fmt == '0')
			s->zero = true;
		else if (*fmt == '#')
			s->alternate = true;
		else
			break;
	}
	for (; *fmt >= '0' && *fmt <= '9'; fmt++)
		s->width = s->width * 10 + (size_t)(*fmt - '0');
	if (*fmt == '.') {
		s->precision = 0;
		if (*++fmt == '*') {
			int given = va_arg(*ap, int);

			s->precision = given < 0 ? SIZE_MAX : (size_t)given;
			fmt++;
		}
		for (; *fmt >= '0' && *fmt <= '9'; fmt++)
			s->precision = s->precision * 10 + (size_t)(*fmt - '0');
	}
	for (; *fmt == 'l' || *fmt == 'z'; fmt++)
		s->longs++;
	return fmt;
}

static void put_signed(struct out *o, struct spec *s, va_list *ap)
{
	int64_t value = s->longs > 1 ? va_arg(*ap, long long) :
		s->longs             ? va_arg(*ap, long) :
				       va_arg(*ap, int);

	s->negative = value < 0;
	s->alternate = false;
	put_number(o, s, s->negative ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

static void put_unsigned(struct out *o, struct spec *s, va_list *ap, unsigned base)
{
	uint64_t value = s->longs > 1 ? va_arg(*ap, unsigned long long) :
		s->longs              ? va_arg(*ap, unsigned long) :
					va_arg(*ap, unsigned);

	s->alternate = s->alternate && base == 16 && value;
	put_number(o, s, value, base);
}

static void put_conversion(struct out *o, struct spec *s, char type, va_list *ap)
{
	char c;

	switch (type) {
	case 'd':
	case 'i':
		put_signed(o, s, ap);
		break;
	case 'u':
		put_unsigned(o, s, ap, 10);
		break;
	case 'x':
		put_unsigned(o, s, ap, 16);
		break;
	case 'p':
		s->alternate = true;
		put_number(o, s, (uintptr_t)va_arg(*ap, void *), 16);
		break;
	case 's':
		put_string(o, s, va_arg(*ap, const char *));
		break;
	case 'c':
		c = (char)va_arg(*ap, int);
		put_padded(o, s, &c, 1, false);
		break;
	default:
		/* "%%", or something that we do not know and show as it is. */
		if (type != '%')
			put(o, '%');
		put(o, type);
		break;
	}
}

static size_t format_list(char *buf, size_t size, const char *fmt, va_list ap)
{
	struct out o = { buf, size, 0 };
	struct spec s;
	va_list args;

	va_copy(args, ap);
	for (; *fmt; fmt++) {
		if (*fmt != '%') {
			put(&o, *fmt);
			continue;
		}
		fmt = parse_spec(fmt + 1, &s, &args);
		if (!*fmt)
			break;
		put_conversion(&o, &s, *fmt, &args);
	}
	va_end(args);
	if (size)
		buf[CRN_MIN(o.len, size - 1)] = '\0';
	return o.len;
}

size_t crn_format(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	len = format_list(buf, size, fmt, ap);
	va_end(ap);
	return len;
}

void crn_log(enum crn_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error: ", "warning: ", "", "debug: " };
	char line[CRN_LOG_LINE_MAX];
	size_t len;
	va_list ap;

	if (level > log_max || !log_writer)
		return;
	len = crn_format(line, sizeof(line), "cairn: %s", names[level]);
	va_start(ap, fmt);
	len += format_list(line + len, sizeof(line) - len, fmt, ap);
	va_end(ap);
	/* A line that was cut still ends in its newline. */
	len = CRN_MIN(len, sizeof(line) - 1);
	line[len++] = '\n';
	log_writer(line, len);
}
