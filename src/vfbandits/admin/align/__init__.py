"""Which users two participants have in common, found before the federation serves.

The passive participant learns the common users by private set intersection (Diffie-Hellman over a
curve, no false matches), and sends the active one their pseudonyms.  Each learns the common users
and how many users the other has; of other users it learns nothing, if both follow the protocol.
One that does not can add users that it does not have, and learn which of these the other has.
"""
