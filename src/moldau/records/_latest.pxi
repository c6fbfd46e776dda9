# --- the latest of each key -------------------------------------------------------------------
#
# A part of _codec_native.pyx. Whoever compacts goes through whole logs: all of it runs without the
# GIL, so that the event loop never waits for it, and an entry has a fixed size, so that many keys
# fit into little memory.

cdef enum:
    SECRET_BYTES = 16
    FEWEST_SLOTS = 64
    MOST_GROWTH = 16  # of a record whose timestamp is written anew: nine bytes, and its length

LATEST_KEY_BYTES = sizeof(Latest)

cdef struct Latest:
    uint64_t low
    uint64_t high
    int64_t end_offset  # the offset and one; 0 where nothing is


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotate(v[1], 13)
    v[1] ^= v[0]
    v[0] = rotate(v[0], 32)
    v[2] += v[3]
    v[3] = rotate(v[3], 16)
    v[3] ^= v[2]
    v[0] += v[3]
    v[3] = rotate(v[3], 21)
    v[3] ^= v[0]
    v[2] += v[1]
    v[1] = rotate(v[1], 17)
    v[1] ^= v[2]
    v[2] = rotate(v[2], 32)


cdef inline uint64_t little_endian(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef uint64_t word = 0
    cdef Py_ssize_t index
    for index in range(length):
        word |= <uint64_t>data[index] << (8 * index)
    return word


cdef void hash_key(
    const uint64_t* secret, const uint8_t* data, Py_ssize_t length, Latest* found
) noexcept nogil:
    """SipHash-2-4 of 128 bits. Who does not know the secret finds no two keys that share a hash:
    one of them would be lost."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t left = length
    cdef int step
    v[0] = secret[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = secret[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = secret[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        word = little_endian(data, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        data += 8
        left -= 8
    word = (<uint64_t>length << 56) | little_endian(data, left)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for step in range(4):
        sip_round(v)
    found.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for step in range(4):
        sip_round(v)
    found.high = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline Latest* find_latest(
    Latest* entries, uint64_t slots, const Latest* wanted
) noexcept nogil:
    """The entry of a key, or the empty one where it belongs. There always is an empty one."""
    cdef uint64_t slot = wanted.low % slots
    while entries[slot].end_offset:
        if entries[slot].low == wanted.low and entries[slot].high == wanted.high:
            break
        slot += 1
        if slot == slots:
            slot = 0
    return &entries[slot]


cdef class LatestOffsets:
    """The last offset of each key; an open table. One thread at a time."""

    cdef Latest* entries
    cdef uint64_t slots
    cdef uint64_t used
    cdef uint64_t secret[2]

    def __init__(self, Py_ssize_t expected_keys, bytes secret not None):
        if PyBytes_GET_SIZE(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
        self.secret[0] = little_endian(<const uint8_t*>PyBytes_AS_STRING(secret), 8)
        self.secret[1] = little_endian(<const uint8_t*>PyBytes_AS_STRING(secret) + 8, 8)
        if not self.make_room(expected_keys):
            raise MemoryError()

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.used

    def clear(self):
        """Give the memory back; that of many keys takes milliseconds."""
        with nogil:
            free(self.entries)
            self.entries = NULL
            self.slots = self.used = 0

    cdef bint make_room(self, int64_t more_keys) noexcept nogil:
        """So that there are slots for so many more keys, and an empty one; False without memory."""
        cdef uint64_t wanted = self.used + <uint64_t>max(more_keys, 0) + 1
        cdef uint64_t slot
        cdef Latest* entries
        if wanted <= self.slots:
            return True
        wanted = max(wanted + wanted // 12, <uint64_t>FEWEST_SLOTS)
        entries = <Latest*>calloc(wanted, sizeof(Latest))
        if entries == NULL:
            return False
        for slot in range(self.slots):
            if self.entries[slot].end_offset:
                find_latest(entries, wanted, &self.entries[slot])[0] = self.entries[slot]
        free(self.entries)
        self.entries = entries
        self.slots = wanted
        return True

    def add(self, payload, int64_t record_count, int64_t base_offset, int64_t from_offset):
        """Note the keys of records from an offset on."""
        cdef Py_buffer view
        cdef Cursor cursor
        cdef Fault fault
        cdef bint sound
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        point(&cursor, &view)
        with nogil:
            sound = self.add_all(cursor, record_count, base_offset, from_offset, &fault)
        PyBuffer_Release(&view)
        if not sound:
            if fault.kind == OUT_OF_MEMORY:
                raise MemoryError()
            raise as_error(&fault)

    cdef bint add_all(
        self,
        Cursor cursor,
        int64_t record_count,
        int64_t base_offset,
        int64_t from_offset,
        Fault* fault,
    ) noexcept nogil:
        cdef Parts parts
        cdef Latest latest
        cdef Latest* found
        cdef int64_t index
        cdef int64_t offset
        if not check_count(record_count, fault):
            return False
        # A count promises much; the bytes say how many records there can be.
        if not self.make_room(min(record_count, (cursor.end - cursor.at) // LEAST_RECORD_BYTES)):
            return fail(fault, OUT_OF_MEMORY, RECORD_COUNT, 0, 0)
        for index in range(record_count):
            if not read_record(&cursor, &parts, fault):
                fault.index = index
                return False
            offset = add_wrapping(base_offset, parts.offset_delta)
            if parts.key_bytes < 0 or offset < from_offset:
                continue
            hash_key(self.secret, parts.key, parts.key_bytes, &latest)
            found = find_latest(self.entries, self.slots, &latest)
            if not found.end_offset:
                self.used += 1
            latest.end_offset = offset + 1
            found[0] = latest
        return check_end(&cursor, record_count, fault)

    def select(
        self,
        payload,
        int64_t record_count,
        int64_t base_offset,
        int64_t base_timestamp,
        int64_t end_offset,
        bint drop_tombstones,
        horizon_ms,
    ):
        """What stays of a batch: how many records, the highest timestamp of them, whether the
        horizon is set, and their bytes if they are others than before."""
        cdef Py_buffer view
        cdef Cursor cursor
        cdef Fault fault
        cdef Selection chosen
        cdef bint sound
        chosen.has_horizon = horizon_ms is not None
        chosen.horizon_ms = horizon_ms if chosen.has_horizon else 0
        chosen.base_offset = base_offset
        chosen.base_timestamp = base_timestamp
        chosen.end_offset = end_offset
        chosen.drop_tombstones = drop_tombstones
        chosen.stays = NULL
        chosen.output = Output(NULL, 0, 0)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        point(&cursor, &view)
        with nogil:
            sound = self.choose(cursor, record_count, &chosen, &fault) and copy_chosen(
                cursor, record_count, &chosen, &fault
            )
            free(chosen.stays)
        PyBuffer_Release(&view)
        try:
            if not sound:
                if fault.kind == OUT_OF_MEMORY:
                    raise MemoryError()
                raise as_error(&fault)
            content = None
            if chosen.output.data != NULL:
                content = PyBytes_FromStringAndSize(
                    <const char*>chosen.output.data, chosen.output.used
                )
            return chosen.count, chosen.max_timestamp, bool(chosen.sets_horizon), content
        finally:
            free(chosen.output.data)

    cdef bint choose(
        self, Cursor cursor, int64_t record_count, Selection* chosen, Fault* fault
    ) noexcept nogil:
        cdef Parts parts
        cdef const uint8_t* start
        cdef int64_t index
        cdef int64_t timestamp
        cdef int64_t most
        cdef bint has_tombstone = False
        chosen.count = chosen.kept_bytes = 0
        chosen.max_timestamp = 0
        chosen.sets_horizon = False
        if not check_count(record_count, fault):
            return False
        most = min(record_count, (cursor.end - cursor.at) // LEAST_RECORD_BYTES)
        chosen.stays = <uint8_t*>calloc(most + 1, 1)
        if chosen.stays == NULL:
            return fail(fault, OUT_OF_MEMORY, RECORD_COUNT, 0, 0)
        for index in range(record_count):
            start = cursor.at
            if not read_record(&cursor, &parts, fault):
                fault.index = index
                return False
            if not self.stays(&parts, chosen):
                continue
            chosen.stays[index] = True
            chosen.kept_bytes += cursor.at - start
            timestamp = add_wrapping(chosen.base_timestamp, parts.timestamp_delta)
            if not chosen.count or timestamp > chosen.max_timestamp:
                chosen.max_timestamp = timestamp
            chosen.count += 1
            if parts.value_bytes < 0:
                has_tombstone = True
        chosen.sets_horizon = chosen.has_horizon and has_tombstone
        return check_end(&cursor, record_count, fault)

    cdef inline bint stays(self, Parts* parts, Selection* chosen) noexcept nogil:
        cdef Latest latest
        cdef int64_t offset = add_wrapping(chosen.base_offset, parts.offset_delta)
        if offset >= chosen.end_offset:
            return True
        if parts.key_bytes < 0 or (parts.value_bytes < 0 and chosen.drop_tombstones):
            return False
        if not self.slots:
            return True
        hash_key(self.secret, parts.key, parts.key_bytes, &latest)
        return find_latest(self.entries, self.slots, &latest).end_offset <= offset + 1


cdef struct Selection:
    int64_t base_offset
    int64_t base_timestamp
    int64_t end_offset
    int64_t horizon_ms
    bint has_horizon
    bint drop_tombstones
    uint8_t* stays
    int64_t count
    int64_t kept_bytes
    int64_t max_timestamp
    bint sets_horizon
    Output output


cdef bint copy_chosen(
    Cursor cursor, int64_t record_count, Selection* chosen, Fault* fault
) noexcept nogil:
    """The bytes of what stays; none where nothing stays, or everything as it was."""
    cdef Parts parts
    cdef const uint8_t* start
    cdef int64_t index
    cdef int64_t shift_ms = 0
    cdef int64_t kept_bytes = 0
    cdef Py_ssize_t room = chosen.kept_bytes
    if not chosen.count or (chosen.count == record_count and not chosen.sets_horizon):
        return True
    if chosen.sets_horizon:
        shift_ms = <int64_t>(<uint64_t>chosen.base_timestamp - <uint64_t>chosen.horizon_ms)
        room += MOST_GROWTH * chosen.count
    chosen.output.data = <uint8_t*>malloc(room)
    if chosen.output.data == NULL:
        return fail(fault, OUT_OF_MEMORY, RECORD_COUNT, 0, 0)
    fault.index = 0
    for index in range(record_count):
        start = cursor.at
        if not read_record(&cursor, &parts, fault):  # as it was before, unless somebody writes
            return False
        if not chosen.stays[index]:
            continue
        kept_bytes += cursor.at - start
        if kept_bytes > chosen.kept_bytes:
            return fail(fault, CUT_SHORT, RECORD_LENGTH, 0, 0)
        if shift_ms:
            put_shifted(&chosen.output, start, cursor.at, shift_ms)
        else:
            memcpy(chosen.output.data + chosen.output.used, start, cursor.at - start)
            chosen.output.used += cursor.at - start
    return True


cdef void put_shifted(
    Output* output, const uint8_t* start, const uint8_t* end, int64_t shift_ms
) noexcept nogil:
    """A record, relative to a base timestamp that is so much earlier."""
    cdef Cursor cursor
    cdef Fault fault
    cdef int32_t length
    cdef int64_t delta = 0
    cdef uint8_t attributes
    cursor.at = start
    cursor.end = end
    read_varint(&cursor, &length, RECORD_LENGTH, &fault)
    attributes = cursor.at[0]
    cursor.at += 1
    read_varlong(&cursor, &delta, TIMESTAMP_DELTA, &fault)
    delta = add_wrapping(delta, shift_ms)
    put_varint(output, 1 + varint_size(delta) + (end - cursor.at))
    output.data[output.used] = attributes
    output.used += 1
    put_varint(output, delta)
    memcpy(output.data + output.used, cursor.at, end - cursor.at)
    output.used += end - cursor.at
