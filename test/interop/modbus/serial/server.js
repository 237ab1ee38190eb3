// A Modbus TCP server (modbus-serial) on the host and port that are its arguments. It answers every unit id with one
// and the same set of tables, which map.json describes; holding register 99 is the unit id that was asked.
const fs = require('fs');
const path = require('path');
const modbus = require('modbus-serial');

const [host, port] = process.argv.slice(2);
const map = JSON.parse(fs.readFileSync(path.join(__dirname, '..', 'map.json')));
const holding = new Map(Object.entries(map.holding).flatMap(([at, values]) => values.map((v, i) => [Number(at) + i, v])));
const UNIT = 99;

const refuse = (code) => { throw Object.assign(new Error('refused'), { modbusErrorCode: code }); };
const at = (table, address) => (address < table.length ? table[address] : refuse(2));

new modbus.ServerTCP({
  getCoil: (address) => at(map.coils, address),
  getDiscreteInput: (address) => at(map.discretes, address),
  getInputRegister: (address) => at(map.inputs, address),
  getHoldingRegister: (address, unit) => {
    if (address === UNIT) return unit;
    return holding.has(address) ? holding.get(address) : refuse(2);
  },
  setCoil: (address, value) => { at(map.coils, address); map.coils[address] = value; },
  setRegister: (address, value) => {
    if (!holding.has(address)) refuse(2);
    holding.set(address, value);
  },
  readDeviceIdentification: () => map.identity.reduce((all, text, id) => ({ ...all, [id]: text }), {}),
}, { host, port: Number(port), unitID: 255 }).on('error', () => {});
