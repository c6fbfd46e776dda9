"""The door to kio: Kafka's frames, headers and messages, as typed values and back.

    apis            every API: key, name, versions served and spoken
    versions        which class and which reader an API and version have
    headers         request and response headers
    messages        any message through kio, guarded against hostile lengths
    writer          kio's classes into bytes
    shape           neutral values into the classes of one version
    produce_frame   Produce, by hand, without copying record bytes
    fetch_frame     Fetch, by hand, without copying record bytes
    quick_frames    what nearly all of these look like, read in C where it was built

Nothing here opens a socket or decides anything. Importing the package loads none of kio's API
modules; each is loaded when its first message arrives.
"""
