# --- columns on their way into batches ----------------------------------------------------------
#
# A part of _codec_native.pyx. The columns come from elsewhere: no offset in them is believed.

cdef enum:
    # Around key, value and headers of a record: five varints, two varlongs, the attributes.
    MOST_BYTES_AROUND_PARTS = 46
    MOST_VIEWS = 18  # three of each column of strings, two of the others

cdef struct Texts:
    bint is_given
    const uint8_t* offsets
    const uint8_t* validity  # NULL where no row is null
    const uint8_t* data
    int64_t size

cdef struct Integers:
    bint is_given
    const uint8_t* validity
    const uint8_t* data

# A record as it stands in the columns, and about what it takes; a length of -1 stands for null.
cdef struct Found:
    Py_ssize_t size
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    int32_t key_bytes
    int32_t value_bytes
    int64_t first_header
    int64_t end_header

cdef struct Header:
    const uint8_t* name
    const uint8_t* value
    int32_t name_bytes
    int32_t value_bytes

# What may be wrong with a row.
cdef enum:
    NO_SUCH_ROW = 1
    ROW_OUTSIDE = 2
    HEADER_OUTSIDE = 3
    NAMELESS_HEADER = 4


cdef inline int32_t read_int32(const uint8_t* data, Py_ssize_t index) noexcept nogil:
    cdef int32_t number
    memcpy(&number, data + 4 * index, 4)
    return number


cdef inline int64_t read_int64(const uint8_t* data, Py_ssize_t index) noexcept nogil:
    cdef int64_t number
    memcpy(&number, data + 8 * index, 8)
    return number


cdef inline bint is_null(const uint8_t* validity, Py_ssize_t row) noexcept nogil:
    return validity != NULL and not (validity[row >> 3] >> (row & 7)) & 1


cdef inline bint find_text(
    Texts* texts, Py_ssize_t row, const uint8_t** start, int32_t* length
) noexcept nogil:
    """False where the row lies outside of the data."""
    cdef int32_t first
    cdef int32_t end
    if not texts.is_given or is_null(texts.validity, row):
        length[0] = -1
        return True
    first = read_int32(texts.offsets, row)
    end = read_int32(texts.offsets, row + 1)
    if first < 0 or end < first or end > texts.size:
        return False
    start[0] = texts.data + first
    length[0] = end - first
    return True


cdef inline uint8_t* write_text(uint8_t* at, const uint8_t* start, int32_t length) noexcept nogil:
    at = write_varint(at, length)
    if length > 0:
        memcpy(at, start, length)
        at += length
    return at


cdef inline Py_ssize_t text_size(int32_t length) noexcept nogil:
    """The room for a length and as many bytes."""
    return varint_size(length) + (length if length > 0 else 0)


cdef class ColumnEncoder:
    """Encodes rows of columns straight into batches. See `codec.ColumnEncoding`."""

    cdef readonly Py_ssize_t row_count
    cdef int64_t timestamp_ms
    cdef Texts keys
    cdef Texts values
    cdef Integers timestamps
    cdef Integers partitions
    cdef Texts headers  # lists: its size is how many headers there are
    cdef Texts header_names
    cdef Texts header_values
    cdef Py_buffer views[MOST_VIEWS]
    cdef int view_count

    def __cinit__(
        self,
        Py_ssize_t row_count,
        *,
        values,
        keys=None,
        headers=None,
        timestamps=None,
        partitions=None,
        int64_t timestamp_ms=0,
    ):
        if not 0 <= row_count < INT32_MAX:
            raise ValueError(f"columns cannot have {row_count} rows")
        self.row_count = row_count
        self.timestamp_ms = timestamp_ms
        self.open_texts(&self.values, values, row_count)
        self.open_texts(&self.keys, keys, row_count)
        self.open_integers(&self.timestamps, timestamps, 8)
        self.open_integers(&self.partitions, partitions, 4)
        if headers is not None:
            _, validity, offsets, header_count, names, contents = headers
            if not 0 <= header_count < INT32_MAX:
                raise ValueError(f"columns cannot have {header_count} headers")
            self.headers.is_given = True
            self.headers.size = header_count
            self.headers.offsets = self.open_view(offsets, 4 * (row_count + 1))
            self.headers.validity = self.open_bits(validity, row_count)
            self.open_texts(&self.header_names, names, header_count)
            self.open_texts(&self.header_values, contents, header_count)

    def __dealloc__(self):
        while self.view_count:
            self.view_count -= 1
            PyBuffer_Release(&self.views[self.view_count])

    cdef const uint8_t* open_view(self, content, Py_ssize_t least_bytes) except? NULL:
        cdef Py_buffer* view = &self.views[self.view_count]
        PyObject_GetBuffer(content, view, PyBUF_SIMPLE)
        self.view_count += 1
        if view.len < least_bytes:
            raise ValueError(f"a column has {view.len} bytes where {least_bytes} are needed")
        return <const uint8_t*>view.buf

    cdef const uint8_t* open_bits(self, validity, Py_ssize_t rows) except? NULL:
        if validity is None:
            return NULL
        return self.open_view(validity, (rows + 7) // 8)

    cdef int open_texts(self, Texts* texts, column, Py_ssize_t rows) except -1:
        if column is None:
            return 0
        _, validity, offsets, data = column
        texts.validity = self.open_bits(validity, rows)
        texts.offsets = self.open_view(offsets, 4 * (rows + 1))
        texts.data = self.open_view(data, 0)
        texts.size = self.views[self.view_count - 1].len
        texts.is_given = True
        return 0

    cdef int open_integers(self, Integers* integers, column, Py_ssize_t width) except -1:
        if column is None:
            return 0
        validity, data = column
        integers.validity = self.open_bits(validity, self.row_count)
        integers.data = self.open_view(data, width * self.row_count)
        integers.is_given = True
        return 0

    cdef int find(self, int64_t row, Found* found) noexcept:
        """Where the parts of a record are, and about what it takes, as `row_size` says it; what is
        wrong with it otherwise."""
        cdef Header header
        cdef int64_t number
        cdef int fault
        if not 0 <= row < self.row_count:
            return NO_SUCH_ROW
        found.timestamp = self.timestamp_ms
        if self.timestamps.is_given and not is_null(self.timestamps.validity, row):
            found.timestamp = read_int64(self.timestamps.data, row)
        if not (
            find_text(&self.keys, row, &found.key, &found.key_bytes)
            and find_text(&self.values, row, &found.value, &found.value_bytes)
        ):
            return ROW_OUTSIDE
        found.size = OVERHEAD_BYTES + <Py_ssize_t>max(found.key_bytes, 0) + max(found.value_bytes, 0)
        found.first_header = found.end_header = 0
        if not self.headers.is_given or is_null(self.headers.validity, row):
            return 0
        found.first_header = read_int32(self.headers.offsets, row)
        found.end_header = read_int32(self.headers.offsets, row + 1)
        if not 0 <= found.first_header <= found.end_header <= self.headers.size:
            return ROW_OUTSIDE
        for number in range(found.first_header, found.end_header):
            fault = self.find_header(number, &header)
            if fault:
                found.first_header = number
                return fault
            found.size += 10 + <Py_ssize_t>header.name_bytes + max(header.value_bytes, 0)
        return 0

    cdef int find_header(self, int64_t number, Header* header) noexcept:
        if not (
            find_text(&self.header_names, number, &header.name, &header.name_bytes)
            and find_text(&self.header_values, number, &header.value, &header.value_bytes)
        ):
            return HEADER_OUTSIDE
        return NAMELESS_HEADER if header.name_bytes < 0 else 0

    cdef object explain(self, int fault, int64_t row, Found* found):
        if fault == NO_SUCH_ROW:
            return IndexError(f"there is no row {row} of {self.row_count}")
        if fault == HEADER_OUTSIDE:
            return ValueError(f"header {found.first_header} lies outside of its data")
        if fault == NAMELESS_HEADER:
            return TypeError("a header's name is text, not NoneType")
        return outside(row)

    cdef Py_ssize_t encoded_headers_size(self, Found* found) noexcept:
        cdef Py_ssize_t size = 0
        cdef Header header
        cdef int64_t number
        for number in range(found.first_header, found.end_header):
            self.find_header(number, &header)
            size += text_size(header.name_bytes) + text_size(header.value_bytes)
        return size

    cdef uint8_t* write(
        self, uint8_t* at, Found* found, int64_t index, int64_t timestamp_delta
    ) noexcept:
        """Write a record that was found, where the room is known to be there."""
        cdef Header header
        cdef int64_t number
        cdef int64_t header_count = found.end_header - found.first_header
        at = write_varint(
            at,
            1
            + varint_size(timestamp_delta)
            + varint_size(index)
            + text_size(found.key_bytes)
            + text_size(found.value_bytes)
            + varint_size(header_count)
            + (self.encoded_headers_size(found) if header_count else 0),
        )
        at[0] = 0  # attributes
        at = write_varint(at + 1, timestamp_delta)
        at = write_varint(at, index)
        at = write_text(at, found.key, found.key_bytes)
        at = write_text(at, found.value, found.value_bytes)
        at = write_varint(at, header_count)
        for number in range(found.first_header, found.end_header):
            self.find_header(number, &header)
            at = write_text(at, header.name, header.name_bytes)
            at = write_text(at, header.value, header.value_bytes)
        return at

    def row_size(self, int64_t row):
        """About what a record takes in a batch, before compression."""
        cdef Found found
        cdef int fault = self.find(row, &found)
        if fault:
            raise self.explain(fault, row, &found)
        return found.size

    def append_to(
        self,
        bytearray output not None,
        int64_t first_index,
        rows,
        Py_ssize_t start,
        Py_ssize_t limit_bytes,
        base_timestamp,
    ):
        """Encode rows from a place of their list on, as many as fit."""
        cdef Py_buffer view
        cdef const uint8_t* numbers = NULL
        cdef Py_ssize_t row_total = self.row_count
        if start < 0:
            raise IndexError(f"a list has no place {start}")
        if rows is None:
            return self.append_rows(
                output, first_index, NULL, row_total, start, limit_bytes, base_timestamp
            )
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            numbers, row_total = <const uint8_t*>view.buf, view.len // 4
            return self.append_rows(
                output, first_index, numbers, row_total, start, limit_bytes, base_timestamp
            )
        finally:
            PyBuffer_Release(&view)

    cdef tuple append_rows(
        self,
        bytearray output,
        int64_t first_index,
        const uint8_t* numbers,
        Py_ssize_t row_total,
        Py_ssize_t start,
        Py_ssize_t limit_bytes,
        base_timestamp,
    ):
        cdef Found found
        cdef Py_ssize_t place = start
        cdef Py_ssize_t end
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t used = len(output)
        cdef int64_t row
        cdef int64_t base = 0
        cdef int64_t highest = 0
        cdef int64_t index = first_index
        cdef int fault
        cdef uint8_t* at
        while place < row_total:
            row = place if numbers == NULL else read_int32(numbers, place)
            fault = self.find(row, &found)
            if place > start and (fault or found.size > INT32_MAX - MOST_BYTES_AROUND_PARTS):
                break  # those before it are taken
            if fault:
                raise self.explain(fault, row, &found)
            if found.size > limit_bytes - total:
                break
            if found.size > INT32_MAX - MOST_BYTES_AROUND_PARTS:
                raise BatchTooLargeError(f"record {index} has {found.size} bytes")
            if place == start:
                base = found.timestamp if base_timestamp is None else base_timestamp
                highest = found.timestamp
            elif found.timestamp > highest:
                highest = found.timestamp
            total += found.size
            place += 1
        if place == start:
            return 0, 0, start, 0, 0
        end = place
        PyByteArray_Resize(
            output, used + total + (end - start) * (MOST_BYTES_AROUND_PARTS - OVERHEAD_BYTES)
        )
        at = <uint8_t*>PyByteArray_AS_STRING(output) + used
        for place in range(start, end):
            self.find(place if numbers == NULL else read_int32(numbers, place), &found)
            at = self.write(
                at, &found, index, add_wrapping(found.timestamp, <int64_t>(0 - <uint64_t>base))
            )
            index += 1
        PyByteArray_Resize(output, at - <uint8_t*>PyByteArray_AS_STRING(output))
        return end - start, total, end, base, highest

    def split(self, Py_ssize_t partition_count, bint ignores_keys=False):
        """The rows of each partition, and behind them those that are free to go anywhere."""
        cdef Py_ssize_t row
        cdef Py_ssize_t number
        cdef int32_t part
        cdef int32_t moved
        cdef list ends = []
        cdef int64_t total = 0
        cdef bytes ordered
        cdef int32_t* places
        cdef int32_t* parts = NULL
        cdef int64_t* counts = NULL
        if not 0 < partition_count < INT32_MAX:
            raise ValueError(f"a topic cannot have {partition_count} partitions")
        ordered = PyBytes_FromStringAndSize(NULL, 4 * self.row_count)
        places = <int32_t*>PyBytes_AS_STRING(ordered)
        try:
            parts = <int32_t*>malloc(4 * max(self.row_count, 1))
            counts = <int64_t*>calloc(partition_count + 1, 8)
            if parts == NULL or counts == NULL:
                raise MemoryError()
            for row in range(self.row_count):
                part = self.choose(row, <int32_t>partition_count, ignores_keys)
                parts[row] = part
                counts[part] += 1
            for number in range(partition_count + 1):
                total += counts[number]
                ends.append(total)
                counts[number] = total - counts[number]  # where the next of it goes
            for row in range(self.row_count):
                part = parts[row]
                moved = <int32_t>row
                memcpy(places + counts[part], &moved, 4)
                counts[part] += 1
            return ordered, ends
        finally:
            free(parts)
            free(counts)

    cdef int32_t choose(self, Py_ssize_t row, int32_t partition_count, bint ignores_keys) except -1:
        """A number of a partition; their count stands for none."""
        cdef const uint8_t* key = NULL
        cdef int32_t key_bytes = 0
        cdef int32_t part
        if self.partitions.is_given and not is_null(self.partitions.validity, row):
            part = read_int32(self.partitions.data, row)
            if not 0 <= part < partition_count:
                raise ValueError(f"row {row} names partition {part} of {partition_count}")
            return part
        if not find_text(&self.keys, row, &key, &key_bytes):
            raise outside(row)
        if ignores_keys or key_bytes < 0:
            return partition_count
        return <int32_t>((hash_murmur2(key, key_bytes) & 0x7FFFFFFF) % <uint32_t>partition_count)


cdef object outside(int64_t row):
    return ValueError(f"row {row} lies outside of its column")
