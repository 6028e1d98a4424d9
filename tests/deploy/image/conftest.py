"""Build the image once for all its tests."""

from collections.abc import Iterator

import pytest

from deploy.image.built import Built, built


@pytest.fixture(scope="session")
def tableside_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The image, built and unpacked."""
    with built(tmp_path_factory.mktemp("image")) as ready:
        yield ready
