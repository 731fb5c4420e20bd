"""Files of the home: config.json keeps the names of its fields across versions."""

from pathlib import Path

import msgspec

from hostelry.home.home import Home, UpConfig, load_config, save_config

CONFIG = UpConfig(gateway_port=9000, control_port=9001, chosen_gateway_port=9000)


def test_config_is_read_as_it_was_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    save_config(home, CONFIG)
    assert load_config(home) == CONFIG


def test_the_gateways_ports_have_the_names_of_older_versions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    save_config(home, CONFIG)
    stored = msgspec.json.decode(home.config.read_bytes())
    assert (stored["door_port"], stored["chosen_door_port"]) == (9000, 9000)
    home.config.write_bytes(b'{"door_port": 9000, "control_port": 9001, "chosen_door_port": 9000}')
    assert load_config(home) == CONFIG
