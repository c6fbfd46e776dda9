"""Builds the record codec; without a compiler its twin in Python serves (records/codec.py)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "moldau.records._codec_native",
            ["src/moldau/records/_codec_native.pyx"],
            depends=["src/moldau/records/_columns.pxi"],
            optional=True,
            extra_compile_args=["-O3", "-g0"],
        )
    ]
)
