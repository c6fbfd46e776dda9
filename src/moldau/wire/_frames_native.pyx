# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
# cython: embedsignature=False, initializedcheck=False, cdivision=True
"""Reads the usual shape of what arrives most: request headers, Produce and Fetch.

Whatever is unusual (tagged fields, a count or a length that does not fit, text that is not UTF-8)
is answered with None, and read again by `headers`, `produce_frame` and `fetch_frame`, which know
everything and say what is wrong. So these are the twins, nothing is decided twice, and nothing is
missing where this module was not built. One test suite runs on both.

Every read is bounded by the end of the frame, whatever the bytes say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef object _make = tuple.__new__

cdef enum:
    UUID_BYTES = 16
    PRODUCE_FIRST_FLEXIBLE = 9
    PRODUCE_FIRST_BY_ID = 13
    FETCH_FIRST_WITH_LOG_START = 5
    FETCH_FIRST_WITH_SESSIONS = 7
    FETCH_FIRST_WITH_LEADER_EPOCH = 9
    FETCH_FIRST_WITH_RACK = 11
    FETCH_FIRST_FLEXIBLE = 12
    FETCH_FIRST_BY_ID = 13
    FETCH_FIRST_WITHOUT_REPLICA_ID = 15


cdef struct Cursor:
    const uint8_t* data
    Py_ssize_t position
    Py_ssize_t end
    bint failed  # once set, nothing that was read since counts


cdef inline bint _needs(Cursor* cursor, Py_ssize_t count) noexcept:
    if cursor.failed or count < 0 or cursor.end - cursor.position < count:
        cursor.failed = True
        return False
    return True


cdef inline int32_t _int8(Cursor* cursor) noexcept:
    if not _needs(cursor, 1):
        return 0
    cursor.position += 1
    return <int32_t>(<signed char>cursor.data[cursor.position - 1])


cdef inline int32_t _int16(Cursor* cursor) noexcept:
    if not _needs(cursor, 2):
        return 0
    cdef const uint8_t* at = cursor.data + cursor.position
    cursor.position += 2
    return <int16_t>((<uint16_t>at[0] << 8) | at[1])


cdef inline int32_t _int32(Cursor* cursor) noexcept:
    if not _needs(cursor, 4):
        return 0
    cdef const uint8_t* at = cursor.data + cursor.position
    cursor.position += 4
    return <int32_t>(
        (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]
    )


cdef inline int64_t _int64(Cursor* cursor) noexcept:
    cdef uint64_t high = <uint32_t>_int32(cursor)
    cdef uint64_t low = <uint32_t>_int32(cursor)
    return <int64_t>((high << 32) | low)


cdef inline Py_ssize_t _varint(Cursor* cursor) noexcept:
    """Of up to four bytes, which is 256 MiB: more is unusual."""
    cdef Py_ssize_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 28:
        if not _needs(cursor, 1):
            return 0
        byte = cursor.data[cursor.position]
        cursor.position += 1
        value |= <Py_ssize_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    cursor.failed = True
    return 0


cdef inline void _no_tags(Cursor* cursor) noexcept:
    if _needs(cursor, 1):
        if cursor.data[cursor.position]:
            cursor.failed = True
        cursor.position += 1


cdef inline Py_ssize_t _length(Cursor* cursor, bint flexible, bint wide) noexcept:
    """Of a string, of bytes (`wide`) or of an array; -1 for null."""
    if flexible:
        return _varint(cursor) - 1
    return _int32(cursor) if wide else _int16(cursor)


cdef inline Py_ssize_t _count(Cursor* cursor, bint flexible, Py_ssize_t min_bytes) noexcept:
    cdef Py_ssize_t count = _length(cursor, flexible, True)
    if count < 0 or count > (cursor.end - cursor.position) // min_bytes:
        cursor.failed = True
        return 0
    return count


cdef object _string(Cursor* cursor, bint flexible):
    """None also for one that cannot be read; then the cursor has failed."""
    cdef Py_ssize_t length = _length(cursor, flexible, False)
    if length == -1 or not _needs(cursor, length):
        if length < -1:
            cursor.failed = True
        return None
    cdef Py_ssize_t start = cursor.position
    cursor.position += length
    try:
        return PyUnicode_DecodeUTF8(<const char*>cursor.data + start, length, NULL)
    except UnicodeDecodeError:
        cursor.failed = True
        return None


cdef object _topic_name(Cursor* cursor, bint flexible):
    name = _string(cursor, flexible)
    if name is None:
        cursor.failed = True
    return name


cdef object _topic_id(Cursor* cursor, object uuid_of):
    if not _needs(cursor, UUID_BYTES):
        return None
    cursor.position += UUID_BYTES
    return uuid_of(
        PyBytes_FromStringAndSize(
            <const char*>cursor.data + cursor.position - UUID_BYTES, UUID_BYTES
        )
    )


def read_header(frame, dict first_flexible, header_class):
    """The header and the position of the body, or None."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    cdef Cursor cursor = Cursor(<const uint8_t*>view.buf, 0, view.len, False)
    try:
        api_key = _int16(&cursor)
        version = _int16(&cursor)
        correlation_id = _int32(&cursor)
        client_id = _string(&cursor, False)
        first = first_flexible.get(api_key)
        if first is not None and version >= first:
            _no_tags(&cursor)
        if cursor.failed:
            return None
        header = _make(header_class, (api_key, version, correlation_id, client_id))
        return header, cursor.position
    finally:
        PyBuffer_Release(&view)


def parse_produce(int version, frame, Py_ssize_t position, request_class, topic_class, uuid_of):
    """The request whose body starts at the position, or None."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    cdef Cursor cursor = Cursor(<const uint8_t*>view.buf, position, view.len, False)
    cdef bint flexible = version >= PRODUCE_FIRST_FLEXIBLE
    cdef Py_ssize_t topics_left, partitions_left, length, start
    cdef list topics = [], partitions
    try:
        transactional_id = _string(&cursor, flexible)
        acks = _int16(&cursor)
        timeout_ms = _int32(&cursor)
        topics_left = _count(&cursor, flexible, 3)
        while topics_left and not cursor.failed:
            topics_left -= 1
            name = topic_id = None
            if version >= PRODUCE_FIRST_BY_ID:
                topic_id = _topic_id(&cursor, uuid_of)
            else:
                name = _topic_name(&cursor, flexible)
            partitions_left = _count(&cursor, flexible, 6)
            partitions = []
            while partitions_left and not cursor.failed:
                partitions_left -= 1
                index = _int32(&cursor)
                length = _length(&cursor, flexible, True)
                start = cursor.position
                if not _needs(&cursor, length):  # null is unusual, too
                    return None
                cursor.position += length
                partitions.append((index, frame[start : start + length]))
                if flexible:
                    _no_tags(&cursor)
            if flexible:
                _no_tags(&cursor)
            topics.append(_make(topic_class, (name, topic_id, partitions)))
        if flexible:
            _no_tags(&cursor)
        if cursor.failed:
            return None
        return _make(request_class, (transactional_id, acks, timeout_ms, topics))
    finally:
        PyBuffer_Release(&view)


def parse_fetch(
    int version, frame, Py_ssize_t position, request_class, topic_class, partition_class, uuid_of
):
    """The request of a consumer whose body starts at the position, or None. Those that forget
    partitions are unusual, and so are followers, who say more of themselves in tagged fields."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    cdef Cursor cursor = Cursor(<const uint8_t*>view.buf, position, view.len, False)
    cdef bint flexible = version >= FETCH_FIRST_FLEXIBLE
    cdef Py_ssize_t topics_left, partitions_left
    cdef list topics = [], partitions
    cdef int32_t replica_id = -1, session_id = 0, session_epoch = -1
    cdef int32_t max_wait_ms, min_bytes, max_bytes, isolation_level
    try:
        if version < FETCH_FIRST_WITHOUT_REPLICA_ID:
            replica_id = _int32(&cursor)
        max_wait_ms = _int32(&cursor)
        min_bytes = _int32(&cursor)
        max_bytes = _int32(&cursor)
        isolation_level = _int8(&cursor)
        if version >= FETCH_FIRST_WITH_SESSIONS:
            session_id = _int32(&cursor)
            session_epoch = _int32(&cursor)
        topics_left = _count(&cursor, flexible, 3)
        while topics_left and not cursor.failed:
            topics_left -= 1
            name = topic_id = None
            if version >= FETCH_FIRST_BY_ID:
                topic_id = _topic_id(&cursor, uuid_of)
            else:
                name = _topic_name(&cursor, flexible)
            partitions_left = _count(&cursor, flexible, 16)
            partitions = []
            while partitions_left and not cursor.failed:
                partitions_left -= 1
                partitions.append(_fetch_partition(&cursor, version, partition_class))
            if flexible:
                _no_tags(&cursor)
            topics.append(_make(topic_class, (name, topic_id, partitions)))
        if version >= FETCH_FIRST_WITH_SESSIONS and _length(&cursor, flexible, True) != 0:
            return None
        rack_id = ""
        if version >= FETCH_FIRST_WITH_RACK:
            rack_id = _topic_name(&cursor, flexible)
        if flexible:
            _no_tags(&cursor)
        if cursor.failed:
            return None
        return _make(
            request_class,
            (
                replica_id,
                -1,
                max_wait_ms,
                min_bytes,
                max_bytes,
                isolation_level,
                session_id,
                session_epoch,
                topics,
                [],
                rack_id,
                None,
            ),
        )
    finally:
        PyBuffer_Release(&view)


cdef object _no_high_watermark = (1 << 63) - 1


cdef object _fetch_partition(Cursor* cursor, int version, partition_class):
    cdef int32_t index, leader_epoch = -1, last_fetched_epoch = -1
    cdef int64_t fetch_offset, log_start_offset = -1
    index = _int32(cursor)
    if version >= FETCH_FIRST_WITH_LEADER_EPOCH:
        leader_epoch = _int32(cursor)
    fetch_offset = _int64(cursor)
    if version >= FETCH_FIRST_FLEXIBLE:
        last_fetched_epoch = _int32(cursor)
    if version >= FETCH_FIRST_WITH_LOG_START:
        log_start_offset = _int64(cursor)
    max_bytes = _int32(cursor)
    if version >= FETCH_FIRST_FLEXIBLE:
        _no_tags(cursor)
    return _make(
        partition_class,
        (
            index,
            leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            max_bytes,
            None,
            _no_high_watermark,
        ),
    )
