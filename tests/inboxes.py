"""Places for inboxes: in memory and in a real PostgreSQL, plain and encrypted."""

from journals import KEY, OnPostgres, query

from vfbandits.journal.inbox.memory import InboxRecords, MemoryInbox
from vfbandits.journal.inbox.postgres import PostgresInbox


class DrawerInMemory:
    def __init__(self, key=None):
        self.drawer, self.key = InboxRecords(), key

    def open(self):
        return MemoryInbox(self.drawer, key=self.key)

    def records(self):
        return [slip.record for slip in self.drawer.slips.values()]

    def put_record(self, record):
        (slip,) = self.drawer.slips.values()
        slip.record = record

    def put_key_of(self, one, other):
        """Swap the records of two rows."""
        first, second = (
            list(self.drawer.slips.values())[one],
            list(self.drawer.slips.values())[other],
        )
        first.record, second.record = second.record, first.record


class DrawerOnPostgres:
    def __init__(self, key=None):
        self.place, self.key = OnPostgres(None, key), key
        self.place.open().close()  # makes the log
        self.open().close()

    def open(self):
        return PostgresInbox(self.place.url, name=self.place.name, key=self.key)

    def rows(self):
        sql = "SELECT id, record FROM vfb_inbox WHERE journal = %s ORDER BY id"
        return query(sql, self.place.id)

    def records(self):
        return [record for _, record in self.rows()]

    def put_record(self, record):
        query("UPDATE vfb_inbox SET record = %s WHERE journal = %s", record, self.place.id)

    def put_key_of(self, one, other):
        rows = self.rows()
        for (number, _), (_, record) in ((rows[one], rows[other]), (rows[other], rows[one])):
            query("UPDATE vfb_inbox SET record = %s WHERE id = %s", record, number)


INBOXES = {
    f"{kind.__name__}{'Sealed' if key else ''}": (kind, key)
    for kind in (DrawerInMemory, DrawerOnPostgres)
    for key in (None, KEY)
}


def make_drawer(name):
    kind, key = INBOXES[name]
    return kind(key)
