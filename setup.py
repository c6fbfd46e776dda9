"""Builds what is written in Cython; without a compiler the twins in Python serve (records/codec.py,
wire/quick_frames.py)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "moldau.records._codec_native",
            ["src/moldau/records/_codec_native.pyx"],
            depends=[
                "src/moldau/records/_column_encoder.pxi",
                "src/moldau/records/_columns.pxi",
                "src/moldau/records/_latest.pxi",
                "src/moldau/records/_lines.pxi",
            ],
            optional=True,
            extra_compile_args=["-O3", "-g0"],
        ),
        Extension(
            "moldau.wire._frames_native",
            ["src/moldau/wire/_frames_native.pyx"],
            optional=True,
            extra_compile_args=["-O2", "-g0"],
        ),
    ]
)
