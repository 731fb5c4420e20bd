import uuid

from hostelry.base.ids import new_request_id


def test_a_request_id_is_a_random_uuid() -> None:
    ids = [new_request_id() for _ in range(200)]
    for text in ids:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)
    assert len(set(ids)) == 200
