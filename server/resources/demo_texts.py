"""Contains the texts of the demo rows: the notes of a small field station on a coast. All people are invented.

`server.resources.demo` creates rows from these tables and lists. It must not know: columns.

In a table each line is a row, `|` separates cells, and `-` is an empty cell. A group or a user is a number, from 1. In
lists, blanks separate single words, and empty lines separate notes.
"""

from __future__ import annotations

# The last group has no users, so it can be deleted.
GROUPS = ("Boats and moorings", "Laboratory", "Workshop", "Data", "Visitors", "Winter school")

# first name | last name | email | gender | born, or `aged` a number | group | status | words
PEOPLE = """
Zoë       | Almeida       | zoe.almeida@example.com       | female | 1991-04-12 | 1 | active  | sailing, knots, coffee
Łukasz    | Nowicki       | lukasz.nowicki@example.com    | male   | 1984-11-02 | 2 | active  | plankton, chess
Maeve     | O'Brien       | maeve.obrien@example.com      | female | 1978-07-23 | 1 | active  | boats, diving, first aid
明轩      | 李            | mingxuan.li@example.com       | male   | 1995-01-30 | 4 | active  | python, maps, tides
Ingrid    | Solberg       | ingrid.solberg@example.com    | female | 1969-09-17 | 2 | active  | seaweed, microscopes
Tomás     | Herrera       | tomas.herrera@example.com     | male   | 1988-02-29 | 3 | active  | welding, guitar
Amina     | Diallo        | amina.diallo@example.com      | female | 1993-12-05 | 4 | active  | python, statistics
Jonas     | Weber         | jonas.weber@example.com       | male   | 1975-03-08 | 3 | active  | engines, radio
Priya     | Raman         | priya.raman@example.com       | female | 1990-08-19 | 2 | active  | chemistry, tea
Robin     | Ashdown       | robin.ashdown@example.com     | other  | 1998-05-27 | 4 | active  | sql, maps, birds
Sione     | Tupou         | -                             | male   | 1982-10-11 | 1 | active  | sailing, navigation
Hélène    | Garnier       | helene.garnier@example.com    | female | 1966-06-03 | 2 | active  | shellfish, cooking
Kofi      | Asante        | kofi.asante@example.com       | male   | 1987-01-15 | 3 | active  | carpentry, football
Yuki      | Tanabe        | yuki.tanabe@example.com       | -      | 1999-10-31 | 4 | active  | python, drawing
Márta     | Szalai        | marta.szalai@example.com      | female | 1981-04-04 | 2 | active  | microscopes, choir
Callum    | Fraser        | callum.fraser@example.com     | male   | 1972-12-20 | 1 | active  | boats, moorings, knots
Noor      | Haddad        | noor.haddad@example.com       | female | aged 34    | 4 | active  | statistics, tides
Stefan    | Ilić          | stefan.ilic@example.com       | male   | 1994-07-07 | 3 | active  | electronics, radio
Beatriz   | Fonseca       | beatriz.fonseca@example.com   | female | 1985-05-16 | 2 | active  | plankton, photography
Oskar     | Lindqvist     | -                             | male   | 2001-02-14 | 1 | active  | sailing, rowing
Wanjiru   | Kamau         | wanjiru.kamau@example.com     | female | 1989-09-09 | 4 | active  | maps, satellites
Dmitri    | Volkov        | dmitri.volkov@example.com     | male   | 1963-11-25 | 3 | archive | engines, chess
Siobhán   | Ní Dhomhnaill | siobhan@example.com           | female | 1997-03-17 | 2 | active  | seaweed, fiddle
Matteo    | Conti         | matteo.conti@example.com      | male   | 1992-06-21 | 1 | active  | diving, cooking
Freya     | Østergaard    | freya.ostergaard@example.com  | female | 1986-08-08 | 4 | active  | sql, knitting
Emeka     | Obi           | emeka.obi@example.com         | male   | 1979-10-28 | 3 | active  | hydraulics, football
Alex      | Marchetti     | alex.marchetti@example.com    | other  | 2000-01-01 | 2 | active  | chemistry, climbing
Rosa      | Quispe        | -                             | female | 1968-04-30 | 3 | archive | sewing, sails
Henrik    | Dahl          | henrik.dahl@example.com       | male   | -          | 1 | active  | navigation, weather
Leila     | Farahani      | leila.farahani@example.com    | female | 1996-11-11 | 4 | active  | python, weather
Gareth    | Pryce         | gareth.pryce@example.com      | male   | 1974-02-06 | 3 | block   | radio
Anneli    | Koskinen      | anneli.koskinen@example.com   | female | 1983-12-24 | 2 | active  | shellfish, skiing
Thiago    | Nascimento    | thiago.nascimento@example.com | male   | aged 29    | 1 | active  | diving, photography
Catríona  | MacLeod       | catriona.macleod@example.com  | female | 1959-05-02 | - | archive | birds, history
Bao       | Trần          | bao.tran@example.com          | male   | 1993-08-26 | 4 | active  | satellites, sql
Elif      | Yıldız        | elif.yildiz@example.com       | female | 1990-10-10 | 2 | active  | plankton, tea
Pieter    | van der Meer  | pieter.vandermeer@example.com | male   | 1977-07-19 | 1 | active  | boats, sailing, engines
Johanna   | Brandt        | -                             | female | 1961-01-22 | 3 | archive | sails, gardening
Samuel    | Adeyemi       | samuel.adeyemi@example.com    | male   | 2002-09-03 | 4 | active  | python, chess
Nadia     | Petrova       | nadia.petrova@example.com     | female | 1988-03-29 | 2 | block   | chemistry
Fionn     | Daly          | fionn.daly@example.com        | male   | 1999-06-15 | 1 | active  | rowing, knots
Marisol   | Ibarra        | marisol.ibarra@example.com    | -      | 1980-11-08 | 3 | active  | electronics, welding
Ravi      | Menon         | ravi.menon@example.com        | male   | 1971-09-27 | 4 | active  | statistics, cricket
Greta     | Hoffmann      | greta.hoffmann@example.com    | female | -          | 2 | active  | microscopes
Owen      | Llewellyn     | owen.llewellyn@example.org    | male   | 1956-12-12 | 5 | active  | birds, photography
Aiko      | Morioka       | aiko.morioka@example.org      | female | 1998-02-18 | 5 | active  | seaweed, drawing
Benoît    | Lefèvre       | benoit.lefevre@example.org    | male   | 1965-08-01 | 5 | active  | history, sailing
Chiamaka  | Eze           | chiamaka.eze@example.org      | female | 2003-04-23 | 5 | active  | python, plankton
Daniel    | Rosen         | daniel.rosen@example.org      | male   | 1994-05-05 | 5 | block   | -
Eszter    | Vámos         | eszter.vamos@example.org      | female | aged 41    | 5 | active  | choir, birds
Farid     | Karimov       | farid.karimov@example.org     | male   | 1986-01-19 | 5 | active  | weather
Hana      | Dvořáková     | hana.dvorakova@example.org    | female | 1991-07-13 | 5 | active  | maps, climbing
Ibrahim   | Sesay         | -                             | male   | -          | 5 | archive | -
Jude      | Whitlock      | jude.whitlock@example.org     | other  | 2004-10-06 | 5 | active  | drawing, birds
Katrín    | Jónsdóttir    | katrin.jonsdottir@example.org | female | 1976-03-31 | 5 | active  | tides, knitting
Luca      | Bianchi       | luca.bianchi@example.org      | male   | 2007-06-09 | 5 | active  | football
Mei       | 林            | mei.lin@example.org           | female | 1987-12-16 | - | active  | photography, tea
Nikos     | Papadakis     | nikos.papadakis@example.org   | male   | 1941-02-02 | - | archive | sailing, history
Olena     | Shevchuk      | olena.shevchuk@example.org    | -      | -          | - | active  | -
Paul      | Tremblay      | -                             | -      | -          | - | block   | -
"""

# user | birth city | favourite films
BIOS = """
1  | Porto        | The Red Balloon; Playtime
2  | Gdańsk       | Solaris; Stalker
4  | 青岛         | Spirited Away; Paprika
5  | Bergen       | -
7  | Dakar        | Touki Bouki; Some Like It Hot
8  | Bremerhaven  | Das Boot; The Third Man
10 | Whitby       | Kes; Local Hero
11 | Nukuʻalofa   | Whale Rider
13 | Cape Coast   | The General; Safety Last!
14 | Hakodate     | Totoro; Tokyo Story; Ran
16 | Oban         | Local Hero; Whisky Galore!
17 | Tripoli      | Caramel; Casablanca
19 | Aveiro       | -
20 | Visby        | The Seventh Seal; Fanny and Alexander
22 | Murmansk     | Solaris; Battleship Potemkin
23 | Dingle       | The Secret of Roan Inish; Song of the Sea
25 | Esbjerg      | Babette's Feast; Pelle the Conqueror
26 | Port Harcourt | Modern Times
28 | Puno         | City Lights; Roma
29 | Tromsø       | -
31 | Swansea      | The Dam Busters; Zulu
32 | Turku        | The Man Without a Past; Ariel
34 | Stornoway    | I Know Where I'm Going!; Whisky Galore!
35 | Đà Nẵng      | The Scent of Green Papaya
37 | Vlissingen   | Das Boot; Playtime
38 | Stralsund    | Metropolis; M
40 | Varna        | -
41 | Galway       | Song of the Sea; The Quiet Man
43 | Kochi        | Pather Panchali; Jaws
44 | Kiel         | Metropolis; Run Lola Run
46 | Otaru        | Spirited Away; Seven Samurai
47 | Saint-Malo   | Playtime; Mon oncle; Jaws
49 | Haifa        | Casablanca
50 | Győr         | Cat City
52 | Brno         | Closely Watched Trains; Daisies
53 | Freetown     | -
55 | Akureyri     | Rams; Of Horses and Men
56 | Trieste      | Cinema Paradiso; The Great Beauty
58 | Chania       | Zorba the Greek; Z
59 | Odesa        | Battleship Potemkin
"""

BOATS = ("Curlew", "Marigold", "Petrel", "Little Auk", "Saltmarsh", "Windhover", "Old Margaret")
PLACES = ("North Quay", "Gull Point", "the east mudflats", "Sandwick Bay", "the slipway", "Cold Creek", "Farness Sound")
MONTHS = "January February March April May June July August September October November December"
BIRDS = """
avocet bittern curlew dunlin eider fulmar gannet godwit guillemot heron kestrel knot merlin osprey
petrel plover puffin razorbill ruff sanderling shelduck smew snipe teal tern turnstone whimbrel wigeon
"""

# Title, then body, with gaps. Every title has one of boat, place, month or bird: the same note on another occasion has
# another title.
NOTES = """
{boat} is back in the water
Antifouling done, two anodes replaced. {name} has the keys. Please log engine hours.

Mooring check at {place}
{n} moorings lifted, two shackles worn. {name} orders new ones; don't use buoy 4 until then.

Tide gauge at {place} drifts again
It reads about {n} mm high since the storm. I levelled it against the benchmark.

{month} plankton counts
All {n} samples are counted. Copepods are up on last year, the rest is as usual. Table in the shared folder.

Freezer 2: what to throw out by {month}
{n} boxes have no label. Whatever is still without a name at the end of the month goes.

How to log in to {bird}
Ask {name} for a key, not for a password. The old accounts are closed.

Backup of {bird} restored
We tried it for once: {n} minutes from an empty disk to a working machine. Notes below the wiki page.

Who is driving to {place}?
{n} crates of bottles have to get there before the spring tide. {name} can help to carry.

Minutes, Monday in {month}
Present: {n}. The winch comes first, then the roof. {name} writes to the harbour office.

Lost: a torque wrench, last seen on {boat}
It says {name} on the handle. No questions asked.

Seal count, {place}
{n} adults, four pups. Counted twice, from the ridge, at low water. Please keep the drone away.

Calibration of the salinity probe, {month}
Within 0.02 of the standard on all {n} points. Next time in a quarter.

Night watch in {month}
The list is on the door. {n} nights are still free; {name} swaps with anybody who hates Sundays.

{boat}: engine report
Changed oil and both filters at {n} hours. A slight leak at the water pump, watch it.

School class at {place}
{n} children, two teachers. {name} does the touch tank, I do the lighthouse. Rain plan: the film.

Bird ringing at {place}
{n} dunlin and one surprise, a broad-billed sandpiper. Photographs are with {name}.

Data gap in {month}
The logger stopped for {n} hours when its battery went flat. I marked the rows; nothing is interpolated.

New labels for {month} samples
Station, date, depth, initials, in pencil. {name} could not read {n} of the last batch.

Why {bird} was slow
One query read the whole table {n} times a minute. It has an index now.

Crane booked for {boat}
Half past seven, before the fishermen. {name} and two more, with helmets please.

Wind limit for {boat}
We don't go out above force 5, and not above 4 with visitors. {name} decides on the day, and that is that.

Water samples from {place}
Nitrate is fine, phosphate a little high in {n} bottles. We repeat those before we tell anyone.

The kettle, {month} edition
It is descaled. {name} asks that it is not used to warm up agar, ever again.

Spare parts on board {boat}
Impeller, two belts, {n} fuses, a tin of grease. If you use one, write it on the list.

Map of eelgrass at {place}
{n} patches walked with the hand-held receiver. {name} will draw it; the raw tracks are in the archive.

Moving off {bird}
It is {n} years old and loud. Please copy what is yours before the end of the month.

Radio check, {boat}
Channel 8 is clear as far as the sound. {name} heard us on the hand-held from {place}.

Storm in {month}: what broke
One window, the flagpole, {n} roof slates. All boats are fine. Thank you for coming out at night.

Diving at {place}
Visibility {n} m, 11 degrees. {name} found the lost sediment trap and a bicycle.

Fuel for {month}
We used {n} jerrycans, two fewer than a year ago. The receipts go to {name}, not on the fridge.

Oyster growth, {place}
Baskets turned and weighed, {n} dead of two hundred. The smallest ones moved to the upper rack.

Reading club in {month}
Chapter {n} of the tides book, bring the exercises. {name} brings cake.

Sails of {boat}
The jib has a tear of {n} cm along the leech. It is with the sailmaker for a week.

Weather station at {place}
The anemometer squeaks, so {name} climbed up. {n} minutes of data are missing around noon.

Please don't unplug {bird}
It looks idle, and it is the only thing that talks to the tide gauge. {name} found it off for {n} hours.

Guests in {month}
{n} people from the university, three nights. {name} has the room list and the dietary one.

First aid bag of {boat}
Checked and refilled. {n} plasters had expired in a year that some of us can't remember.

Sea trout at {place}
{n} tagged, none of them last year's. The reader now works in the rain as well.

Dashboard: {month} is up
Temperature, salinity, wind. {name} found a wrong unit in {n} rows, corrected.

Beach clean at {place}
{n} bags, one tyre, a message in a bottle (a receipt). {name} took the photographs.
"""

# surname | parents with their part | children
FAMILIES = """
Okonkwo    | Ngozi mother, Chike father            | Ada, Kelechi, Obinna
Sørensen   | Lise mother, Mads father              | Asta, Viggo, Sofie, Emil
Marchand   | Claire mother, Julien father          | Louise, Théo, Inès
Castellanos | Lucía mother, Andrés father           | Valeria, Mateo, Camila, Diego
Whitfield  | Grace mother, Helen mother            | Poppy, Arthur, Isla
Kowalczyk  | Agnieszka mother, Piotr father        | Zofia, Jan, Hanna, Antoni
Nakagawa   | Emi mother, Kenji father              | Sora, Hina, Ren
Petersen   | Ulf adoptive father, Jens father      | Lotte, Finn, Marie, Till
O'Sullivan | Aoife mother, Declan father           | Róisín, Cian, Saoirse
Bhatt      | Meera mother, Arjun father            | Kavya, Rohan, Anika, Dev
Eriksen    | Tone mother                           | Nora
Haile      | Selam mother                          | Yonas, Miriam
Grant      | Duncan -                              | -
Moreau     | Sylvie foster mother                  | Jade
Zhou       | Wei father                            | Xinyi
Lombardi   | Paola mother                          | Giulia
Fashola    | Tunde father                          | Simi, Dayo
Novak      | Petra -                               | Maja
Åkesson    | Bengt guardian                        | Elsa
Teixeira   | Rui -                                 | -
"""

PERSONS = (
    "Ada Winterbourne",
    "Bjørn Halvorsen",
    "Chloé Dubois",
    "Desmond O'Hara",
    "Esperanza Núñez",
    "Florian Bäcker",
    "Gülşen Aydın",
    "Hamish Muir",
    "Ilse de Wit",
    "João Carvalho",
    "김서연",
    "Ludmila Horáčková",
)

# subject | tags
SUBJECTS = """
harbour     | sea, boat
slipway     | boat, work
mudflats    | tide, birds
lighthouse  | sea, building
boatyard    | boat, work, building
saltmarsh   | tide, plants
pier        | sea, building
ferry       | sea, boat, people
dunes       | sand, plants
breakwater  | sea, stone
"""
MOMENTS = ("at dawn", "at low tide", "in fog", "in winter")
CAMERAS = (
    {"model": "X100"},
    {"model": "D750", "lens": "50mm"},
    {"model": "OM-1", "lens": "300mm"},
    {"model": "GR III"},
    {"model": "K-3", "lens": "35mm"},
)
