# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
# cython: embedsignature=False, initializedcheck=False, cdivision=True
"""The record codec in C; `_codec_pure` is its twin and the easier one to read.

Both behave the same, down to the words of a fault, and one test suite runs on both. Every read is
bounded by the end of the record or of the payload, whatever the bytes say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsEncodedString, PyUnicode_DecodeUTF8
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from moldau.errors import BatchTooLargeError, InvalidRecordError
from moldau.records.record import RECORD_OVERHEAD_BYTES, Record
from moldau.records.record_faults import describe

IMPLEMENTATION = "native"

cdef enum:
    MAX_VARINT_BYTES = 5
    MAX_VARLONG_BYTES = 10
    # Below this, letting other threads run costs more than the walk takes.
    RELEASE_BYTES = 131072
    LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths, count of headers

# The numbers of record_faults.py.
cdef enum:
    CUT_SHORT = 1
    OVERLONG = 2
    NEGATIVE = 3
    TOO_LARGE = 4
    UNEXPECTED_OFFSET_DELTA = 5
    KEY_MISSING = 6
    RECORD_LEFT_OVER = 7
    PAYLOAD_LEFT_OVER = 8
    RECORD_MISSING = 9

cdef enum:
    RECORD_COUNT = 0
    RECORD_LENGTH = 1
    ATTRIBUTES = 2
    TIMESTAMP_DELTA = 3
    OFFSET_DELTA = 4
    KEY_LENGTH = 5
    VALUE_LENGTH = 6
    HEADER_COUNT = 7
    HEADER_KEY_LENGTH = 8
    HEADER_VALUE_LENGTH = 9

cdef struct Fault:
    int64_t index
    int kind
    int field
    int64_t found
    int64_t allowed

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end

# Where the parts of a record are; a length of -1 stands for null.
cdef struct Parts:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_bytes
    int32_t value_bytes
    int32_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end


# --- reading ----------------------------------------------------------------------------------

cdef inline bint fail(
    Fault* fault, int kind, int field, int64_t found, int64_t allowed
) noexcept nogil:
    fault.kind = kind
    fault.field = field
    fault.found = found
    fault.allowed = allowed
    return False


cdef inline bint read_varint(
    Cursor* cursor, int32_t* value, int field, Fault* fault
) noexcept nogil:
    cdef uint32_t raw = 0
    cdef uint32_t shift = 0
    cdef uint8_t byte
    while shift < 7 * MAX_VARINT_BYTES:
        if cursor.at >= cursor.end:
            return fail(fault, CUT_SHORT, field, 0, 0)
        byte = cursor.at[0]
        cursor.at += 1
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return fail(fault, OVERLONG, field, 0, 0)


cdef inline bint read_varlong(
    Cursor* cursor, int64_t* value, int field, Fault* fault
) noexcept nogil:
    cdef uint64_t raw = 0
    cdef uint32_t shift = 0
    cdef uint8_t byte
    while shift < 7 * MAX_VARLONG_BYTES:
        if cursor.at >= cursor.end:
            return fail(fault, CUT_SHORT, field, 0, 0)
        byte = cursor.at[0]
        cursor.at += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return fail(fault, OVERLONG, field, 0, 0)


cdef inline bint read_bytes(
    Cursor* cursor,
    int32_t smallest,
    const uint8_t** start,
    int32_t* length,
    int field,
    Fault* fault,
) noexcept nogil:
    """Read a length and step over as many bytes; `smallest` is -1 where null is allowed."""
    if not read_varint(cursor, length, field, fault):
        return False
    if length[0] < smallest:
        return fail(fault, NEGATIVE, field, length[0], 0)
    if length[0] > cursor.end - cursor.at:
        return fail(fault, TOO_LARGE, field, length[0], cursor.end - cursor.at)
    start[0] = cursor.at
    if length[0] > 0:
        cursor.at += length[0]
    return True


cdef inline bint read_record(Cursor* payload, Parts* parts, Fault* fault) noexcept nogil:
    """Read the record at the cursor and move past it; False when it is wrong."""
    cdef Cursor cursor
    cdef int32_t length
    if payload.at >= payload.end:
        return fail(fault, RECORD_MISSING, RECORD_LENGTH, 0, 0)
    if not read_bytes(payload, 0, &cursor.at, &length, RECORD_LENGTH, fault):
        return False
    cursor.end = payload.at
    if cursor.at >= cursor.end:
        return fail(fault, CUT_SHORT, ATTRIBUTES, 0, 0)
    cursor.at += 1
    if not read_varlong(&cursor, &parts.timestamp_delta, TIMESTAMP_DELTA, fault):
        return False
    if not read_varint(&cursor, &parts.offset_delta, OFFSET_DELTA, fault):
        return False
    if not read_bytes(&cursor, -1, &parts.key, &parts.key_bytes, KEY_LENGTH, fault):
        return False
    if not read_bytes(&cursor, -1, &parts.value, &parts.value_bytes, VALUE_LENGTH, fault):
        return False
    if not read_varint(&cursor, &parts.header_count, HEADER_COUNT, fault):
        return False
    if parts.header_count < 0:
        return fail(fault, NEGATIVE, HEADER_COUNT, parts.header_count, 0)
    if parts.header_count > cursor.end - cursor.at:
        return fail(fault, TOO_LARGE, HEADER_COUNT, parts.header_count, cursor.end - cursor.at)
    parts.headers = cursor.at
    parts.end = cursor.end
    if parts.header_count and not skip_headers(&cursor, parts.header_count, fault):
        return False
    if cursor.at != cursor.end:
        return fail(fault, RECORD_LEFT_OVER, RECORD_LENGTH, cursor.end - cursor.at, 0)
    return True


cdef bint skip_headers(Cursor* cursor, int32_t count, Fault* fault) noexcept nogil:
    cdef const uint8_t* start
    cdef int32_t length
    cdef int32_t index
    for index in range(count):
        if not read_bytes(cursor, 0, &start, &length, HEADER_KEY_LENGTH, fault):
            return False
        if not read_bytes(cursor, -1, &start, &length, HEADER_VALUE_LENGTH, fault):
            return False
    return True


cdef bint check_count(int64_t record_count, Fault* fault) noexcept nogil:
    fault.index = 0
    if record_count < 0:
        return fail(fault, NEGATIVE, RECORD_COUNT, record_count, 0)
    return True


cdef inline bint check_end(Cursor* cursor, int64_t record_count, Fault* fault) noexcept nogil:
    fault.index = record_count
    if cursor.at != cursor.end:
        return fail(fault, PAYLOAD_LEFT_OVER, RECORD_COUNT, cursor.end - cursor.at, 0)
    return True


# --- walking ----------------------------------------------------------------------------------

cdef bint walk(
    Cursor cursor, int64_t record_count, bint require_keys, Fault* fault
) noexcept nogil:
    """True when every record is as it must be."""
    cdef Parts parts
    cdef int64_t index
    if not check_count(record_count, fault):
        return False
    for index in range(record_count):
        if not read_record(&cursor, &parts, fault):
            fault.index = index
            return False
        if parts.offset_delta != index:
            fault.index = index
            return fail(fault, UNEXPECTED_OFFSET_DELTA, OFFSET_DELTA, parts.offset_delta, index)
        if require_keys and parts.key_bytes < 0:
            fault.index = index
            return fail(fault, KEY_MISSING, KEY_LENGTH, 0, 0)
    return check_end(&cursor, record_count, fault)


cdef inline void point(Cursor* cursor, Py_buffer* view) noexcept nogil:
    cursor.at = <const uint8_t*>view.buf
    cursor.end = cursor.at + view.len


cdef object in_words(Fault* fault):
    return describe(fault.index, fault.kind, fault.field, fault.found, fault.allowed)


cdef object as_error(Fault* fault):
    found = in_words(fault)
    return InvalidRecordError(f"record {found.index}: {found.reason}")


def find_fault(payload, int64_t record_count, bint require_keys):
    """The first thing that is wrong with the uncompressed records of a batch, or None."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Fault fault
    cdef bint sound
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    point(&cursor, &view)
    if view.len >= RELEASE_BYTES:
        with nogil:
            sound = walk(cursor, record_count, require_keys, &fault)
    else:
        sound = walk(cursor, record_count, require_keys, &fault)
    PyBuffer_Release(&view)
    return None if sound else in_words(&fault)


cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD_BYTES = 12
    CURRENT_MAGIC = 2

cdef object make_tuple = tuple.__new__


cdef inline int32_t int32_at(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    return <int32_t>(
        (<uint32_t>data[at] << 24)
        | (<uint32_t>data[at + 1] << 16)
        | (<uint32_t>data[at + 2] << 8)
        | data[at + 3]
    )


cdef inline int64_t int64_at(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    cdef uint64_t high = <uint32_t>int32_at(data, at)
    cdef uint64_t low = <uint32_t>int32_at(data, at + 4)
    return <int64_t>((high << 32) | low)


cdef inline bint is_usual(
    const uint8_t* data,
    Py_ssize_t size,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    int64_t most_records,
) noexcept nogil:
    """Whether all of the header is as it nearly always is; see `storage.rules.log_validator`."""
    cdef int64_t base_timestamp = int64_at(data, 27)
    cdef int64_t max_timestamp = int64_at(data, 35)
    cdef int32_t record_count = int32_at(data, 57)
    if data[16] != CURRENT_MAGIC or data[21] or data[22]:
        return False
    if <int64_t>int32_at(data, 8) + LOG_OVERHEAD_BYTES != size:
        return False
    if record_count <= 0 or record_count > most_records:
        return False
    if int32_at(data, 23) != record_count - 1:
        return False
    if base_timestamp < 0 or max_timestamp < base_timestamp or now_ms < 0:
        return False
    if max_timestamp - now_ms > after_max_ms or now_ms - base_timestamp > before_max_ms:
        return False
    # A producer id, if there is one, with an epoch and a sequence.
    return int64_at(data, 43) < 0 or not (data[51] & 0x80 or data[53] & 0x80)


def read_usual_batch(
    batch,
    Py_ssize_t most_bytes,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    int64_t most_records,
    bint looks_inside,
    bint require_keys,
    header_class,
):
    """The header of a client's batch that is not compressed, if nothing is wrong with it but,
    perhaps, its checksum; None says nothing."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Fault fault
    cdef const uint8_t* data
    cdef bint sound
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>view.buf
        if view.len < HEADER_BYTES or view.len > most_bytes:
            return None
        if not is_usual(data, view.len, now_ms, before_max_ms, after_max_ms, most_records):
            return None
        if looks_inside:
            point(&cursor, &view)
            cursor.at += HEADER_BYTES
            if view.len >= RELEASE_BYTES:
                with nogil:
                    sound = walk(cursor, int32_at(data, 57), require_keys, &fault)
            else:
                sound = walk(cursor, int32_at(data, 57), require_keys, &fault)
            if not sound:
                return None
        return make_tuple(
            header_class,
            (
                int64_at(data, 0),
                int32_at(data, 8),
                int32_at(data, 12),
                <int32_t>data[16],
                <uint32_t>int32_at(data, 17),
                0,
                int32_at(data, 23),
                int64_at(data, 27),
                int64_at(data, 35),
                int64_at(data, 43),
                <int32_t>(int32_at(data, 51) >> 16),
                int32_at(data, 53),
                int32_at(data, 57),
            ),
        )
    finally:
        PyBuffer_Release(&view)


cdef class RecordWalk:
    """`find_fault` for records that come in pieces, of which none is kept; see the twin."""

    cdef int64_t record_count
    cdef bint require_keys
    cdef int64_t index
    cdef int field
    cdef uint64_t raw
    cdef uint32_t shift
    cdef int64_t skip
    cdef int64_t length
    cdef int64_t left
    cdef int64_t headers_left
    cdef int64_t left_over
    cdef bint is_sound
    cdef Fault fault

    def __init__(self, int64_t record_count, bint require_keys):
        self.record_count = record_count
        self.require_keys = require_keys
        self.field = RECORD_LENGTH
        self.is_sound = check_count(record_count, &self.fault)

    def feed(self, piece):
        cdef Py_buffer view
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        if view.len >= RELEASE_BYTES:
            with nogil:
                self.take_all(<const uint8_t*>view.buf, view.len)
        else:
            self.take_all(<const uint8_t*>view.buf, view.len)
        PyBuffer_Release(&view)
        return None if self.is_sound else in_words(&self.fault)

    def finish(self):
        if self.is_sound:
            self.is_sound = self.end()
            self.fault.index = self.index
        return None if self.is_sound else in_words(&self.fault)

    cdef bint end(self) noexcept nogil:
        if self.left_over:
            return fail(&self.fault, PAYLOAD_LEFT_OVER, RECORD_COUNT, self.left_over, 0)
        if self.field != RECORD_LENGTH or self.skip:
            return fail(
                &self.fault, TOO_LARGE, RECORD_LENGTH, self.length, self.length - self.left
            )
        if self.shift:
            return fail(&self.fault, CUT_SHORT, RECORD_LENGTH, 0, 0)
        if self.index < self.record_count:
            return fail(&self.fault, RECORD_MISSING, RECORD_LENGTH, 0, 0)
        return True

    cdef void take_all(self, const uint8_t* data, int64_t size) noexcept nogil:
        cdef int64_t position = 0
        cdef int64_t count
        while position < size and self.is_sound:
            if self.skip:
                count = min(self.skip, size - position)
                self.skip -= count
                self.left -= count
                position += count
                if not self.skip and self.field == RECORD_LENGTH:
                    self.is_sound = self.end_record()
            elif self.index == self.record_count:
                self.left_over += size - position
                position = size
            elif self.field == ATTRIBUTES:
                self.left -= 1
                position += 1
                self.is_sound = self.go_to(TIMESTAMP_DELTA)
            else:
                self.is_sound = self.take_byte(data[position])
                position += 1
        if not self.is_sound:
            self.fault.index = self.index

    cdef inline bint take_byte(self, uint8_t byte) noexcept nogil:
        cdef uint64_t raw
        cdef uint32_t most = 7 * MAX_VARINT_BYTES
        if self.field == TIMESTAMP_DELTA:
            most = 7 * MAX_VARLONG_BYTES
        self.raw |= <uint64_t>(byte & 0x7F) << self.shift
        self.shift += 7
        if self.field != RECORD_LENGTH:
            self.left -= 1
        if byte < 0x80:
            raw = self.raw
            self.raw = 0
            self.shift = 0
            if self.field != TIMESTAMP_DELTA:
                raw = <uint32_t>raw
            return self.take(<int64_t>((raw >> 1) ^ (0 - (raw & 1))))
        if self.shift >= most:
            return fail(&self.fault, OVERLONG, self.field, 0, 0)
        if self.field != RECORD_LENGTH and not self.left:
            return fail(&self.fault, CUT_SHORT, self.field, 0, 0)
        return True

    cdef bint take(self, int64_t value) noexcept nogil:
        if self.field == RECORD_LENGTH:
            if value < 0:
                return fail(&self.fault, NEGATIVE, RECORD_LENGTH, value, 0)
            self.length = value
            self.left = value
            return self.go_to(ATTRIBUTES)
        if self.field == TIMESTAMP_DELTA:
            return self.go_to(OFFSET_DELTA)
        if self.field == OFFSET_DELTA:
            if value != self.index:
                return fail(
                    &self.fault, UNEXPECTED_OFFSET_DELTA, OFFSET_DELTA, value, self.index
                )
            return self.go_to(KEY_LENGTH)
        if self.field == KEY_LENGTH:
            if value < 0 and self.require_keys:
                return fail(&self.fault, KEY_MISSING, KEY_LENGTH, 0, 0)
            return self.pass_over(value, VALUE_LENGTH, -1)
        if self.field == VALUE_LENGTH:
            return self.pass_over(value, HEADER_COUNT, -1)
        if self.field == HEADER_COUNT:
            return self.take_header_count(value)
        if self.field == HEADER_KEY_LENGTH:
            return self.pass_over(value, HEADER_VALUE_LENGTH, 0)
        self.headers_left -= 1
        return self.pass_over(
            value, HEADER_KEY_LENGTH if self.headers_left else RECORD_LENGTH, -1
        )

    cdef bint take_header_count(self, int64_t count) noexcept nogil:
        if count < 0:
            return fail(&self.fault, NEGATIVE, HEADER_COUNT, count, 0)
        if count > self.left:
            return fail(&self.fault, TOO_LARGE, HEADER_COUNT, count, self.left)
        self.headers_left = count
        if count:
            return self.go_to(HEADER_KEY_LENGTH)
        self.field = RECORD_LENGTH
        return self.end_record()

    cdef bint pass_over(self, int64_t length, int field, int64_t smallest) noexcept nogil:
        if length < smallest:
            return fail(&self.fault, NEGATIVE, self.field, length, 0)
        if length > self.left:
            return fail(&self.fault, TOO_LARGE, self.field, length, self.left)
        self.skip = max(length, 0)
        if field == RECORD_LENGTH:
            self.field = RECORD_LENGTH
            return True if self.skip else self.end_record()
        if self.left == self.skip:
            return fail(&self.fault, CUT_SHORT, field, 0, 0)
        self.field = field
        return True

    cdef inline bint go_to(self, int field) noexcept nogil:
        if not self.left:
            return fail(&self.fault, CUT_SHORT, field, 0, 0)
        self.field = field
        return True

    cdef inline bint end_record(self) noexcept nogil:
        if self.left:
            return fail(&self.fault, RECORD_LEFT_OVER, RECORD_LENGTH, self.left, 0)
        self.index += 1
        return True


def find_first_at_or_after(
    payload,
    int64_t record_count,
    int64_t base_offset,
    int64_t base_timestamp,
    int64_t target_timestamp,
):
    """Offset and timestamp of the first record that is not older than the target, or None."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Parts parts
    cdef Fault fault
    cdef int64_t index
    cdef int64_t timestamp
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        point(&cursor, &view)
        if not check_count(record_count, &fault):
            raise as_error(&fault)
        for index in range(record_count):
            if not read_record(&cursor, &parts, &fault):
                fault.index = index
                raise as_error(&fault)
            timestamp = add_wrapping(base_timestamp, parts.timestamp_delta)
            if timestamp >= target_timestamp:
                return add_wrapping(base_offset, parts.offset_delta), timestamp
        if not check_end(&cursor, record_count, &fault):
            raise as_error(&fault)
        return None
    finally:
        PyBuffer_Release(&view)


# --- decoding ---------------------------------------------------------------------------------

cdef extern from *:
    """
    /* What tuple.__new__(type, fields) does, without looking anything up. */
    static PyObject *moldau_named_tuple(PyObject *type, PyObject *fields)
    {
        PyObject *made;
        PyObject *arguments = PyTuple_Pack(1, fields);
        if (arguments == NULL) return NULL;
        made = PyTuple_Type.tp_new((PyTypeObject *)type, arguments, NULL);
        Py_DECREF(arguments);
        return made;
    }
    """
    object moldau_named_tuple(object tuple_type, tuple fields)


cdef inline int64_t add_wrapping(int64_t left, int64_t right) noexcept nogil:
    """Java's addition: hostile deltas wrap instead of being undefined."""
    return <int64_t>(<uint64_t>left + <uint64_t>right)


cdef inline object bytes_or_none(const uint8_t* start, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>start, length)


cdef tuple decode_headers(Parts* parts):
    cdef Cursor cursor
    cdef Fault fault
    cdef const uint8_t* start
    cdef int32_t length
    cdef int32_t index
    cdef list headers = []
    cursor.at = parts.headers
    cursor.end = parts.end
    for index in range(parts.header_count):
        if not read_bytes(&cursor, 0, &start, &length, HEADER_KEY_LENGTH, &fault):
            raise InvalidRecordError("a header changed while it was read")
        name = PyUnicode_DecodeUTF8(<char*>start, length, "surrogateescape")
        if not read_bytes(&cursor, -1, &start, &length, HEADER_VALUE_LENGTH, &fault):
            raise InvalidRecordError("a header changed while it was read")
        headers.append((name, bytes_or_none(start, length)))
    return tuple(headers)


def decode_records(
    payload,
    int64_t record_count,
    int64_t base_offset,
    int64_t base_timestamp,
    log_append_time_ms=None,
):
    """The records of a batch; with a log append time, all of them have that timestamp."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Parts parts
    cdef Fault fault
    cdef int64_t index
    cdef list records = []
    cdef tuple fields
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        point(&cursor, &view)
        if not check_count(record_count, &fault):
            raise as_error(&fault)
        for index in range(record_count):
            if not read_record(&cursor, &parts, &fault):
                fault.index = index
                raise as_error(&fault)
            fields = (
                add_wrapping(base_offset, parts.offset_delta),
                add_wrapping(base_timestamp, parts.timestamp_delta)
                if log_append_time_ms is None
                else log_append_time_ms,
                bytes_or_none(parts.key, parts.key_bytes),
                bytes_or_none(parts.value, parts.value_bytes),
                decode_headers(&parts) if parts.header_count else (),
            )
            records.append(moldau_named_tuple(Record, fields))
        if not check_end(&cursor, record_count, &fault):
            raise as_error(&fault)
        return records
    finally:
        PyBuffer_Release(&view)


def decode_consumer_records(
    payload,
    int64_t record_count,
    int64_t base_offset,
    int64_t base_timestamp,
    log_append_time_ms,
    int64_t from_offset,
    record_class,
    topic,
    partition,
    leader_epoch,
):
    """The records from an offset on, each with its place and the kind of its timestamp."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Parts parts
    cdef Fault fault
    cdef int64_t index
    cdef int64_t offset
    cdef list records = []
    cdef tuple fields
    cdef object record
    cdef bint is_append_time = log_append_time_ms is not None
    cdef object timestamp_type = 1 if is_append_time else 0
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        point(&cursor, &view)
        if not check_count(record_count, &fault):
            raise as_error(&fault)
        for index in range(record_count):
            if not read_record(&cursor, &parts, &fault):
                fault.index = index
                raise as_error(&fault)
            offset = add_wrapping(base_offset, parts.offset_delta)
            if offset < from_offset:
                continue
            fields = (
                topic,
                partition,
                offset,
                log_append_time_ms
                if is_append_time
                else add_wrapping(base_timestamp, parts.timestamp_delta),
                bytes_or_none(parts.key, parts.key_bytes),
                bytes_or_none(parts.value, parts.value_bytes),
                decode_headers(&parts) if parts.header_count else (),
                timestamp_type,
                leader_epoch,
            )
            record = moldau_named_tuple(record_class, fields)
            # As in make_rows: it can be part of no cycle.
            PyObject_GC_UnTrack(<PyObject*>record)
            records.append(record)
        if not check_end(&cursor, record_count, &fault):
            raise as_error(&fault)
        return records
    finally:
        PyBuffer_Release(&view)


def join_values(
    payload,
    int64_t record_count,
    int64_t base_offset,
    int64_t from_offset,
    int64_t end_offset,
    int64_t most_records,
    bytes null,
):
    """The values of the records between two offsets as lines, and how many they are."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef Parts parts
    cdef Fault fault
    cdef int64_t index
    cdef int64_t offset
    cdef int64_t count = 0
    cdef Py_ssize_t null_bytes = PyBytes_GET_SIZE(null)
    cdef bytearray lines
    cdef uint8_t* at
    if null_bytes >= LEAST_RECORD_BYTES:
        raise ValueError("what stands for null must be shorter than a record without a value")
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        point(&cursor, &view)
        if not check_count(record_count, &fault):
            raise as_error(&fault)
        # Enough: a record has more bytes beside its value than null and a line end have.
        lines = PyByteArray_FromStringAndSize(NULL, view.len)
        at = <uint8_t*>PyByteArray_AS_STRING(lines)
        for index in range(record_count):
            if not read_record(&cursor, &parts, &fault):
                fault.index = index
                raise as_error(&fault)
            offset = add_wrapping(base_offset, parts.offset_delta)
            if offset < from_offset or offset >= end_offset or count >= most_records:
                continue
            if parts.value_bytes < 0:
                memcpy(at, PyBytes_AS_STRING(null), null_bytes)
                at += null_bytes
            else:
                memcpy(at, parts.value, parts.value_bytes)
                at += parts.value_bytes
            at[0] = 10  # a line end
            at += 1
            count += 1
        if not check_end(&cursor, record_count, &fault):
            raise as_error(&fault)
        PyByteArray_Resize(lines, at - <uint8_t*>PyByteArray_AS_STRING(lines))
        return lines, count
    finally:
        PyBuffer_Release(&view)


# --- encoding ---------------------------------------------------------------------------------

cdef struct Output:
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t size


cdef int reserve(Output* output, Py_ssize_t more) except -1:
    cdef Py_ssize_t size = output.size
    cdef void* data
    if output.used + more <= size:
        return 0
    size = max(2 * size, output.used + more, 256)
    data = PyMem_Realloc(output.data, size)
    if data == NULL:
        raise MemoryError()
    output.data = <uint8_t*>data
    output.size = size
    return 0


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    cdef Py_ssize_t size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline void put_varint(Output* output, int64_t value) noexcept nogil:
    """Varint and varlong differ in how much they may hold, not in how they are written."""
    cdef uint64_t raw = zigzag(value)
    while raw >= 0x80:
        output.data[output.used] = <uint8_t>(raw | 0x80)
        output.used += 1
        raw >>= 7
    output.data[output.used] = <uint8_t>raw
    output.used += 1


cdef inline void put_bytes(Output* output, bytes content) noexcept:
    """A length and as many bytes; the caller has reserved the room."""
    cdef Py_ssize_t length
    if content is None:
        put_varint(output, -1)
        return
    length = PyBytes_GET_SIZE(content)
    put_varint(output, length)
    memcpy(output.data + output.used, PyBytes_AS_STRING(content), length)
    output.used += length


cdef inline bytes as_bytes(content):
    if content is None or type(content) is bytes:
        return content
    return bytes(memoryview(content))


cdef inline Py_ssize_t bytes_size(bytes content) noexcept:
    """The room for a length and as many bytes."""
    cdef Py_ssize_t length
    if content is None:
        return 1
    length = PyBytes_GET_SIZE(content)
    return varint_size(length) + length


cdef int put_headers(Output* output, headers) except -1:
    """Write the headers of one record; returns how many there were."""
    cdef int count = 0
    cdef bytes encoded_name
    cdef bytes encoded_value
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is text, not {type(name).__name__}")
        encoded_name = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape")
        encoded_value = as_bytes(value)
        reserve(output, bytes_size(encoded_name) + bytes_size(encoded_value))
        put_bytes(output, encoded_name)
        put_bytes(output, encoded_value)
        count += 1
    return count


cdef int put_record(
    Output* output, Output* headers, int64_t index, tuple row, int64_t base_timestamp
) except -1:
    cdef Py_ssize_t first = len(row) - 4
    cdef int64_t timestamp_delta
    cdef bytes key
    cdef bytes value
    cdef int header_count
    cdef Py_ssize_t size
    if first < 0:
        raise ValueError("a row ends with timestamp, key, value and headers")
    timestamp_delta = add_wrapping(<int64_t>row[first], <int64_t>(0 - <uint64_t>base_timestamp))
    key = as_bytes(row[first + 1])
    value = as_bytes(row[first + 2])
    headers.used = 0
    header_count = put_headers(headers, row[first + 3])
    size = (
        1
        + varint_size(timestamp_delta)
        + varint_size(index)
        + bytes_size(key)
        + bytes_size(value)
        + varint_size(header_count)
        + headers.used
    )
    if size > INT32_MAX:
        raise BatchTooLargeError(f"record {index} has {size} bytes")
    reserve(output, varint_size(size) + size)
    put_varint(output, size)
    output.data[output.used] = 0
    output.used += 1
    put_varint(output, timestamp_delta)
    put_varint(output, index)
    put_bytes(output, key)
    put_bytes(output, value)
    put_varint(output, header_count)
    if headers.used:
        memcpy(output.data + output.used, headers.data, headers.used)
        output.used += headers.used
    return 0


cdef bytes encode_from(int64_t index, rows, int64_t base_timestamp):
    """Records with offset deltas from `index` on."""
    cdef Output output = Output(NULL, 0, 0)
    cdef Output headers = Output(NULL, 0, 0)
    try:
        for row in rows:
            if not isinstance(row, tuple):
                raise TypeError(f"a row is a tuple, not {type(row).__name__}")
            put_record(&output, &headers, index, <tuple>row, base_timestamp)
            index += 1
        return PyBytes_FromStringAndSize(<char*>output.data, output.used)
    finally:
        PyMem_Free(output.data)
        PyMem_Free(headers.data)


def encode_records(rows, int64_t base_timestamp):
    """The uncompressed records of a batch, with offset deltas from 0 on."""
    return encode_from(0, rows, base_timestamp)


# --- rows on their way into batches -----------------------------------------------------------

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject* content)


cdef Py_ssize_t OVERHEAD_BYTES = RECORD_OVERHEAD_BYTES


cdef inline bytes as_payload(content, str field, Py_ssize_t index):
    """The bytes of a key or value, copied where the caller could still change them."""
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise TypeError(f"{field} {index} is {type(content).__name__}, not bytes")


def make_rows(list values, list keys, int64_t timestamp_ms, headers):
    """Rows of values, with keys beside them or None, that share a timestamp and headers."""
    cdef Py_ssize_t index
    cdef list rows = []
    cdef object timestamp = timestamp_ms
    cdef bytes key = None
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"there are {len(values)} values and {len(keys)} keys")
    for index in range(len(values)):
        if keys is not None:
            key = as_payload(<object>PyList_GET_ITEM(keys, index), "key", index)
        value = as_payload(<object>PyList_GET_ITEM(values, index), "value", index)
        row = (timestamp, key, value, headers)
        # It can be part of no cycle, and there may be a million of them: the collector, which
        # would find this out by itself, is spared the work.
        PyObject_GC_UnTrack(<PyObject*>row)
        rows.append(row)
    return rows


cdef inline tuple as_row(row):
    """A row, be it a plain tuple or a named one."""
    if not isinstance(row, tuple):
        raise TypeError(f"a row is a tuple, not {type(row).__name__}")
    if len(<tuple>row) < 4:
        raise ValueError("a row ends with timestamp, key, value and headers")
    return <tuple>row


def find_timestamps(list rows not None):
    """The timestamp of the first row and the highest one; there is at least one row."""
    cdef int64_t first = 0
    cdef int64_t highest = 0
    cdef int64_t timestamp
    cdef Py_ssize_t index
    cdef tuple row
    if not rows:
        raise ValueError("there is no row")
    for index in range(PyList_GET_SIZE(rows)):
        row = as_row(<object>PyList_GET_ITEM(rows, index))
        timestamp = row[len(row) - 4]
        if not index:
            first = highest = timestamp
        elif timestamp > highest:
            highest = timestamp
    return first, highest


cdef Py_ssize_t headers_size(headers) except -1:
    cdef Py_ssize_t size = 0
    for name, value in headers:
        size += 10 + len(PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape"))
        if value is not None:
            size += len(value)
    return size


cdef inline Py_ssize_t size_of(tuple row) except -1:
    cdef Py_ssize_t first = len(row) - 4
    cdef Py_ssize_t size = OVERHEAD_BYTES
    key, value, headers = row[first + 1], row[first + 2], row[first + 3]
    if key is not None:
        size += PyBytes_GET_SIZE(key) if type(key) is bytes else len(key)
    if value is not None:
        size += PyBytes_GET_SIZE(value) if type(value) is bytes else len(value)
    if headers:
        size += headers_size(headers)
    return size


def row_size(row):
    """About what a record takes in a batch, before compression."""
    return size_of(as_row(row))


def count_fitting(list rows not None, Py_ssize_t start, Py_ssize_t limit_bytes):
    """How many rows from `start` on take at most so many bytes together, and what they take."""
    cdef Py_ssize_t index = start
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size
    cdef Py_ssize_t count = PyList_GET_SIZE(rows)
    while index < count:
        size = size_of(as_row(<object>PyList_GET_ITEM(rows, index)))
        if total + size > limit_bytes:
            break
        total += size
        index += 1
    return index - start, total


cdef inline uint32_t hash_murmur2(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t value = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t word
    while length >= 4:
        word = (
            <uint32_t>data[0]
            | <uint32_t>data[1] << 8
            | <uint32_t>data[2] << 16
            | <uint32_t>data[3] << 24
        )
        word *= <uint32_t>0x5BD1E995
        word ^= word >> 24
        word *= <uint32_t>0x5BD1E995
        value = value * <uint32_t>0x5BD1E995 ^ word
        data += 4
        length -= 4
    if length == 3:
        value ^= <uint32_t>data[2] << 16
    if length >= 2:
        value ^= <uint32_t>data[1] << 8
    if length >= 1:
        value = (value ^ data[0]) * <uint32_t>0x5BD1E995
    value = (value ^ value >> 13) * <uint32_t>0x5BD1E995
    return value ^ value >> 15


def murmur2(bytes data not None):
    """The hash as Java shows it: a signed 32-bit number (`Utils.murmur2`)."""
    return <int32_t>hash_murmur2(
        <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    )


def partition_for_key(bytes key not None, Py_ssize_t partition_count):
    """Where every Java client puts this key."""
    cdef uint32_t value
    if partition_count <= 0:
        raise ValueError(f"a topic cannot have {partition_count} partitions")
    value = hash_murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return (value & 0x7FFFFFFF) % partition_count


def split_by_key(list rows not None, Py_ssize_t partition_count):
    """The rows of each partition in order, and at the end of the list those without a key."""
    cdef list parts = [[] for _ in range(partition_count + 1)]
    cdef Py_ssize_t index
    cdef uint32_t value
    cdef tuple row
    cdef bytes key
    if partition_count <= 0:
        raise ValueError(f"a topic cannot have {partition_count} partitions")
    for index in range(PyList_GET_SIZE(rows)):
        row = as_row(<object>PyList_GET_ITEM(rows, index))
        key = row[len(row) - 3]
        if key is None:
            (<list>parts[partition_count]).append(row)
            continue
        value = hash_murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        (<list>parts[(value & 0x7FFFFFFF) % partition_count]).append(row)
    return parts


include "_lines.pxi"
include "_columns.pxi"
include "_column_encoder.pxi"
include "_latest.pxi"
