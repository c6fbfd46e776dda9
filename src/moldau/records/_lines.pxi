# --- batches that are encoded as their records come ---------------------------------------------
#
# A part of _codec_native.pyx.

from libc.string cimport memchr

cdef enum:
    LINE_END = 10
    CARRIAGE_RETURN = 13
    # Around the value of a record without key and headers: three varints, a varlong, 3 bytes.
    MOST_BYTES_AROUND = 28


cdef inline uint8_t* write_varint(uint8_t* at, int64_t value) noexcept nogil:
    """As put_varint, where the room is known to be there."""
    cdef uint64_t raw = zigzag(value)
    while raw >= 0x80:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


def append_rows(bytearray output not None, int64_t first_index, rows, int64_t base_timestamp):
    """Encode rows behind those that are there already; all of them, or none."""
    output += encode_from(first_index, rows, base_timestamp)


def append_lines(
    bytearray output not None,
    int64_t first_index,
    bytes text not None,
    Py_ssize_t start,
    Py_ssize_t limit_bytes,
    int64_t timestamp_delta,
):
    """Encode lines from a place of the text on, as many as fit, as values without a key."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(text)
    cdef const uint8_t* line
    cdef const uint8_t* found
    cdef Py_ssize_t text_bytes = PyBytes_GET_SIZE(text)
    cdef Py_ssize_t used = len(output)
    cdef Py_ssize_t room = used
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t length
    cdef Py_ssize_t size
    cdef int64_t index = first_index
    cdef Py_ssize_t delta_bytes = varint_size(timestamp_delta)
    cdef uint8_t* at
    if start < 0:
        raise ValueError(f"a text has no place {start}")
    try:
        while start < text_bytes:
            line = data + start
            found = <const uint8_t*>memchr(line, LINE_END, text_bytes - start)
            if found == NULL:
                break
            length = found - line
            if length and line[length - 1] == CARRIAGE_RETURN:
                length -= 1
            if length > limit_bytes - total - OVERHEAD_BYTES:
                break
            size = 3 + delta_bytes + varint_size(index) + varint_size(length) + length
            if size > INT32_MAX:
                raise BatchTooLargeError(f"record {index} has {size} bytes")
            if used + length + MOST_BYTES_AROUND > room:
                room = max(
                    used + length + MOST_BYTES_AROUND,
                    used + min(limit_bytes - total, 2 * (text_bytes - start)),
                )
                PyByteArray_Resize(output, room)
            at = <uint8_t*>PyByteArray_AS_STRING(output) + used
            at = write_varint(at, size)
            at[0] = 0  # attributes
            at = write_varint(at + 1, timestamp_delta)
            at = write_varint(at, index)
            at[0] = 1  # no key: the varint of -1
            at = write_varint(at + 1, length)
            memcpy(at, line, length)
            at += length
            at[0] = 0  # no headers
            used = at + 1 - <uint8_t*>PyByteArray_AS_STRING(output)
            index += 1
            total += OVERHEAD_BYTES + length
            start = found - data + 1
    finally:
        if room != used:
            PyByteArray_Resize(output, used)
    return index - first_index, total, start
