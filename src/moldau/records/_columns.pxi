# --- columns ----------------------------------------------------------------------------------
#
# A part of _codec_native.pyx. Memory grows with the rows that are found, whatever a batch promises.

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from moldau.records.columns import MAX_PAYLOAD_BYTES, BytesColumn, HeadersColumn, RecordColumns

cdef enum:
    FIRST_ROWS = 256
    FIRST_BYTES = 4096
    MICROSECONDS = 1000  # in a millisecond
    SPARE_BLOCKS = 4
    LEAST_SPARE_BYTES = 262144
    MOST_SPARE_BYTES = 8388608  # of one block, so that at most 32 MiB are kept
    OUT_OF_MEMORY = 100  # a fault of the machine, not of the records

cdef struct Source:
    Py_buffer view
    int64_t record_count
    int64_t base_offset
    int64_t base_timestamp
    int64_t log_append_time_ms
    bint has_log_append_time
    int64_t start_offset
    int64_t end_offset
    Py_ssize_t rows

cdef struct Numbers:
    int64_t* data
    Py_ssize_t rows
    Py_ssize_t capacity

# Byte strings; or lists, which have no data of their own, and `used` counts their elements.
cdef struct Strings:
    int32_t* offsets
    uint8_t* validity
    uint8_t* data
    Py_ssize_t rows
    Py_ssize_t capacity
    Py_ssize_t used
    Py_ssize_t size
    Py_ssize_t null_count

cdef struct Columns:
    bint with_keys
    bint with_values
    bint with_headers
    uint64_t timestamp_scale
    Numbers offsets
    Numbers timestamps
    Strings keys
    Strings values
    Strings headers
    Strings header_names
    Strings header_values


# Blocks that columns no longer need, for the next ones: the kernel zeroes every page of a fresh
# block, which costs several times what filling it does. Touched under the GIL only.
cdef struct Block:
    void* data
    Py_ssize_t size

cdef Block spare_blocks[SPARE_BLOCKS]
cdef Py_ssize_t spare_count = 0


cdef bint find_spare(Py_ssize_t size, Block* found) noexcept:
    """A spare block that is large enough, and not twice that: the one that was used last."""
    global spare_count
    cdef Py_ssize_t number
    for number in range(spare_count - 1, -1, -1):
        if size <= spare_blocks[number].size < 2 * size:
            found[0] = spare_blocks[number]
            spare_count -= 1
            while number < spare_count:
                spare_blocks[number] = spare_blocks[number + 1]
                number += 1
            return True
    return False


cdef void free_block(void* data, Py_ssize_t size) noexcept:
    """Keep it for the next column if it is of a size worth keeping."""
    global spare_count
    cdef Py_ssize_t number
    if not LEAST_SPARE_BYTES <= size <= MOST_SPARE_BYTES:
        free(data)
        return
    if spare_count == SPARE_BLOCKS:
        free(spare_blocks[0].data)  # the least recently used
        spare_count -= 1
        for number in range(spare_count):
            spare_blocks[number] = spare_blocks[number + 1]
    spare_blocks[spare_count] = Block(data, size)
    spare_count += 1


cdef class ColumnBuffer:
    """Owns the memory of one buffer; a memoryview of it keeps it alive."""

    cdef void* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free_block(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef bint resize(void** data, Py_ssize_t size) noexcept nogil:
    cdef void* moved = realloc(data[0], size)
    if moved == NULL:
        return False
    data[0] = moved
    return True


cdef bint add_number(Numbers* numbers, int64_t number) noexcept nogil:
    if numbers.rows == numbers.capacity:
        if not resize(<void**>&numbers.data, 16 * numbers.capacity):
            return False
        numbers.capacity *= 2
    numbers.data[numbers.rows] = number
    numbers.rows += 1
    return True


cdef bint double_rows(Strings* strings) noexcept nogil:
    """New bits are zero: null until somebody says otherwise."""
    cdef Py_ssize_t more = strings.capacity
    if not resize(<void**>&strings.offsets, 4 * (2 * more + 1)):
        return False
    if not resize(<void**>&strings.validity, 2 * more // 8):
        return False
    memset(strings.validity + more // 8, 0, more // 8)
    strings.capacity += more
    return True


cdef inline bint add_row(Strings* strings, int32_t length) noexcept nogil:
    """A row of so many elements; -1 stands for null."""
    cdef Py_ssize_t row = strings.rows
    if row == strings.capacity and not double_rows(strings):
        return False
    if length < 0:
        strings.null_count += 1
    else:
        strings.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
        strings.used += length
    strings.rows = row + 1
    strings.offsets[row + 1] = <int32_t>strings.used
    return True


cdef inline bint add_string(
    Strings* strings, const uint8_t* start, int32_t length
) noexcept nogil:
    if length > 0:
        if strings.used + length > strings.size and not grow_data(strings, length):
            return False
        memcpy(strings.data + strings.used, start, length)
    return add_row(strings, length)


cdef bint grow_data(Strings* strings, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t size = max(2 * strings.size, strings.used + more, FIRST_BYTES)
    if not resize(<void**>&strings.data, size):
        return False
    strings.size = size
    return True


cdef bint add_name(Strings* names, const uint8_t* start, int32_t length) noexcept nogil:
    """The name of a header, made UTF-8 where it is not."""
    cdef int32_t index
    for index in range(length):
        if start[index] >= 0x80:
            with gil:
                return add_repaired_name(names, start, length)
    return add_string(names, start, length)


cdef bint add_repaired_name(Strings* names, const uint8_t* start, int32_t length) noexcept:
    cdef bytes name
    try:
        name = PyUnicode_AsUTF8String(PyUnicode_DecodeUTF8(<char*>start, length, "replace"))
    except MemoryError:
        return False
    return add_string(
        names, <const uint8_t*>PyBytes_AS_STRING(name), <int32_t>PyBytes_GET_SIZE(name)
    )


cdef bint add_headers(Columns* columns, Parts* parts, Fault* fault) noexcept nogil:
    cdef Cursor cursor
    cdef const uint8_t* start
    cdef int32_t length
    cdef int32_t index
    cursor.at = parts.headers
    cursor.end = parts.end
    for index in range(parts.header_count):
        if not read_bytes(&cursor, 0, &start, &length, HEADER_KEY_LENGTH, fault):
            return False
        if not add_name(&columns.header_names, start, length):
            return fail(fault, OUT_OF_MEMORY, 0, 0, 0)
        if not read_bytes(&cursor, -1, &start, &length, HEADER_VALUE_LENGTH, fault):
            return False
        if not add_string(&columns.header_values, start, length):
            return fail(fault, OUT_OF_MEMORY, 0, 0, 0)
    if not add_row(&columns.headers, parts.header_count if parts.header_count else -1):
        return fail(fault, OUT_OF_MEMORY, 0, 0, 0)
    return True


cdef inline bint add_record(
    Columns* columns, Parts* parts, int64_t offset, int64_t timestamp, Fault* fault
) noexcept nogil:
    if not (
        add_number(&columns.offsets, offset)
        and add_number(
            &columns.timestamps, <int64_t>(<uint64_t>timestamp * columns.timestamp_scale)
        )
        and (
            not columns.with_keys
            or add_string(&columns.keys, parts.key, parts.key_bytes)
        )
        and (
            not columns.with_values
            or add_string(&columns.values, parts.value, parts.value_bytes)
        )
    ):
        return fail(fault, OUT_OF_MEMORY, 0, 0, 0)
    return not columns.with_headers or add_headers(columns, parts, fault)


cdef bint add_source(Columns* columns, Source* source, Fault* fault) noexcept nogil:
    cdef Cursor cursor
    cdef Parts parts
    cdef int64_t index
    cdef int64_t offset
    cdef int64_t timestamp = source.log_append_time_ms
    cdef Py_ssize_t rows_before = columns.offsets.rows
    if not check_count(source.record_count, fault):
        return False
    point(&cursor, &source.view)
    for index in range(source.record_count):
        fault.index = index
        if not read_record(&cursor, &parts, fault):
            return False
        offset = add_wrapping(source.base_offset, parts.offset_delta)
        if offset < source.start_offset or offset >= source.end_offset:
            continue
        if not source.has_log_append_time:
            timestamp = add_wrapping(source.base_timestamp, parts.timestamp_delta)
        if not add_record(columns, &parts, offset, timestamp, fault):
            return False
    source.rows = columns.offsets.rows - rows_before
    return check_end(&cursor, source.record_count, fault)


cdef Py_ssize_t add_sources(
    Columns* columns, Source* sources, Py_ssize_t count, Fault* fault
) noexcept nogil:
    """The number of the source that is at fault, or -1."""
    cdef Py_ssize_t number
    for number in range(count):
        if not add_source(columns, &sources[number], fault):
            return number
    return -1


cdef int start_numbers(Numbers* numbers) except -1:
    numbers.data = <int64_t*>calloc(FIRST_ROWS, 8)
    if numbers.data == NULL:
        raise MemoryError()
    numbers.capacity = FIRST_ROWS
    return 0


cdef int start_strings(Strings* strings) except -1:
    strings.offsets = <int32_t*>calloc(FIRST_ROWS + 1, 4)
    strings.validity = <uint8_t*>calloc(FIRST_ROWS // 8, 1)
    if strings.offsets == NULL or strings.validity == NULL:
        raise MemoryError()
    strings.capacity = FIRST_ROWS
    return 0


cdef int start_columns(Columns* columns, Py_ssize_t payload_bytes) except -1:
    cdef Block spare
    start_numbers(&columns.offsets)
    start_numbers(&columns.timestamps)
    if columns.with_keys:
        start_strings(&columns.keys)
    if columns.with_values:
        start_strings(&columns.values)
        # Values are most of a payload as a rule, and what is not touched costs nothing.
        if find_spare(payload_bytes, &spare):
            columns.values.data, columns.values.size = <uint8_t*>spare.data, spare.size
        elif payload_bytes and not grow_data(&columns.values, payload_bytes):
            raise MemoryError()
    if columns.with_headers:
        start_strings(&columns.headers)
        start_strings(&columns.header_names)
        start_strings(&columns.header_values)
    return 0


cdef void free_strings(Strings* strings) noexcept:
    free(strings.offsets)
    free(strings.validity)
    free(strings.data)


cdef void free_columns(Columns* columns) noexcept:
    """What was handed over is NULL by now."""
    free(columns.offsets.data)
    free(columns.timestamps.data)
    free_strings(&columns.keys)
    free_strings(&columns.values)
    free_strings(&columns.headers)
    free_strings(&columns.header_names)
    free_strings(&columns.header_values)


cdef object hand_over(void** data, Py_ssize_t size, Py_ssize_t capacity=0):
    """A view of what was used; of what was not, only a part may stay allocated."""
    cdef ColumnBuffer buffer
    if size == 0:
        return memoryview(b"")
    if capacity > size + size // 4 or capacity < LEAST_SPARE_BYTES:
        if resize(data, size):
            capacity = size
    buffer = ColumnBuffer.__new__(ColumnBuffer)
    buffer.data = data[0]
    buffer.size = size
    buffer.capacity = capacity
    data[0] = NULL
    return memoryview(buffer)


cdef object hand_over_validity(Strings* strings):
    if not strings.null_count:
        return None
    return hand_over(<void**>&strings.validity, (strings.rows + 7) // 8)


cdef object hand_over_strings(Strings* strings):
    return BytesColumn(
        strings.null_count,
        hand_over_validity(strings),
        hand_over(<void**>&strings.offsets, 4 * (strings.rows + 1)),
        hand_over(<void**>&strings.data, strings.used, strings.size),
    )


cdef object hand_over_headers(Columns* columns):
    cdef Strings* headers = &columns.headers
    return HeadersColumn(
        headers.null_count,
        hand_over_validity(headers),
        hand_over(<void**>&headers.offsets, 4 * (headers.rows + 1)),
        headers.used,
        hand_over_strings(&columns.header_names),
        hand_over_strings(&columns.header_values),
    )


cdef int read_source(Source* source, given) except -1:
    """Take over the numbers and, last, the buffer, which must be released then."""
    payload, record_count, base_offset, base_timestamp, log_append_time_ms, start, end = given
    source.record_count = record_count
    source.base_offset = base_offset
    source.base_timestamp = base_timestamp
    source.has_log_append_time = log_append_time_ms is not None
    source.log_append_time_ms = log_append_time_ms if source.has_log_append_time else 0
    source.start_offset = start
    source.end_offset = end
    PyObject_GetBuffer(payload, &source.view, PyBUF_SIMPLE)
    return 0


def decode_columns(
    sources, *, bint keys=True, bint values=True, bint headers=True, bint microseconds=False
):
    """The records of many batches as columns; nothing is made of columns that are not wanted."""
    cdef list given = list(sources)
    cdef Py_ssize_t count = len(given)
    cdef Py_ssize_t opened = 0
    cdef Py_ssize_t wrong
    cdef Py_ssize_t payload_bytes = 0
    cdef Columns columns
    cdef Fault fault
    cdef Source* read = <Source*>calloc(max(count, 1), sizeof(Source))
    memset(&columns, 0, sizeof(Columns))
    columns.with_keys, columns.with_values, columns.with_headers = keys, values, headers
    columns.timestamp_scale = MICROSECONDS if microseconds else 1
    try:
        if read == NULL:
            raise MemoryError()
        for source in given:
            read_source(&read[opened], source)
            payload_bytes += read[opened].view.len
            opened += 1
        if payload_bytes > <Py_ssize_t>MAX_PAYLOAD_BYTES:
            raise BatchTooLargeError(
                f"{payload_bytes} bytes of records are too many for one table; "
                f"decode at most {MAX_PAYLOAD_BYTES} at a time"
            )
        start_columns(&columns, payload_bytes)
        if payload_bytes >= RELEASE_BYTES:
            with nogil:
                wrong = add_sources(&columns, read, count, &fault)
        else:
            wrong = add_sources(&columns, read, count, &fault)
        if wrong >= 0:
            if fault.kind == OUT_OF_MEMORY:
                raise MemoryError()
            found = in_words(&fault)
            raise InvalidRecordError(
                f"the batch at offset {read[wrong].base_offset}, "
                f"record {found.index}: {found.reason}"
            )
        return RecordColumns(
            columns.offsets.rows,
            [read[index].rows for index in range(count)],
            hand_over(<void**>&columns.offsets.data, 8 * columns.offsets.rows),
            hand_over(<void**>&columns.timestamps.data, 8 * columns.timestamps.rows),
            hand_over_strings(&columns.keys) if keys else None,
            hand_over_strings(&columns.values) if values else None,
            hand_over_headers(&columns) if headers else None,
        )
    finally:
        for wrong in range(opened):
            PyBuffer_Release(&read[wrong].view)
        free(read)
        free_columns(&columns)
