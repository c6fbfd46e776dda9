"""Builds the record codec; without a compiler its pure-Python twin serves (see records/codec.py)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "moldau.records._codec_native",
            ["src/moldau/records/_codec_native.pyx"],
            optional=True,
            extra_compile_args=["-O3"],
        )
    ]
)
