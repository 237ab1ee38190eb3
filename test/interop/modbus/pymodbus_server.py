# A Modbus TCP server (pymodbus 3.0.0, as Debian has it) on the host and port that are its arguments. It has the units 1
# to 3, each with the tables that map.json describes; holding register 99 is the unit id. Any other unit id is ignored.
import json
import os
import sys

from pymodbus.datastore import ModbusServerContext, ModbusSlaveContext, ModbusSparseDataBlock
from pymodbus.device import ModbusDeviceIdentification
from pymodbus.server import StartTcpServer

host, port = sys.argv[1], int(sys.argv[2])
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "map.json"), encoding="utf-8") as file:
    tables = json.load(file)


def sparse(values):
    return ModbusSparseDataBlock(dict(enumerate(values)))


def unit(number):
    holding = {int(at) + i: v for at, values in tables["holding"].items() for i, v in enumerate(values)}
    holding[99] = number
    return ModbusSlaveContext(
        co=sparse(tables["coils"]),
        di=sparse(tables["discretes"]),
        ir=sparse(tables["inputs"]),
        hr=ModbusSparseDataBlock(holding),
        zero_mode=True,
    )


identity = ModbusDeviceIdentification()
for number, text in enumerate(tables["identity"]):
    identity[number] = text

StartTcpServer(
    context=ModbusServerContext(slaves={n: unit(n) for n in (1, 2, 3)}, single=False),
    identity=identity,
    address=(host, port),
    ignore_missing_slaves=True,
    allow_reuse_address=True,
)
